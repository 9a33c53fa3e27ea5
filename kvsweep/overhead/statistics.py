"""From timings to costs: a decision's own time, what it adds to the baseline, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DRAWS = 500
RESOLUTION = 0.002
"""Share [1] of a measured time by which equal work may differ: where code and data lie decides as much."""
DRIFT_PARTS = 8
DRIFT_LIMIT = 0.1
"""Drift [1] of the control beyond which the host is called too noisy."""


@dataclass(frozen=True)
class Costs:
    """Costs on one path, times in [s]; NaN for a policy that was not timed there."""

    decision: Array
    """Time of a decision without the loop, (policy, combination): the median of the rounds."""
    added: Array
    """The same above the mean of the baseline policies."""
    mean_bound: Array
    """95 % interval of the mean of `added` over the combinations, (policy, bound)."""
    median_bound: Array
    """95 % interval of the median of `added` over the combinations, (policy, bound)."""


def costs(rounds: Array, loops: Array, baseline: Sequence[int], seed: int) -> Costs:
    """Return the costs on one path.

    Parameters
    ----------
    rounds : (policy, round, combination) time of a decision [s], loop included
    loops : (round,) time of the loop for one decision [s]
    baseline
        Indices of the baseline policies.
    seed
        Of the bootstrap.

    The intervals come from a bootstrap over rounds, which are as long apart as drift. Two things no number of rounds
    can tell widen them: the baseline policies make no decision and still differ, so what none costs is known no
    better than that, and equal work differs by `RESOLUTION`.
    """
    own = rounds - loops[None, :, None]
    decision = np.median(own, axis=1)
    floor = list(baseline)
    generator = np.random.default_rng(seed)
    means, medians = np.empty((2, DRAWS, len(rounds)))
    for draw in range(DRAWS):
        chosen = generator.integers(0, own.shape[1], own.shape[1])
        added = _above(np.median(own[:, chosen], axis=1), floor)
        means[draw], medians[draw] = added.mean(axis=1), np.median(added, axis=1)
    between = np.std(decision[floor].mean(axis=1), ddof=1) if len(floor) > 1 else 0.0
    unknown = np.hypot(between, RESOLUTION * np.median(rounds, axis=1).mean(axis=1))
    shifts = generator.standard_normal((DRAWS, 1)) * unknown
    return Costs(decision, _above(decision, floor), _interval(means + shifts), _interval(medians + shifts))


def _above(decision: Array, floor: list[int]) -> Array:
    """Return `decision` (policy, combination) above the mean of the policies `floor`."""
    added: Array = decision - decision[floor].mean(axis=0)
    return added


def _interval(draws: Array) -> Array:
    """Return the middle 95 % of (draw, policy) as (policy, bound)."""
    ends: Array = np.percentile(draws, (2.5, 97.5), axis=0).T
    return ends


def drift(control: Array) -> float:
    """Return how much [1] slower the control was in the slowest eighth of the run than in the quickest."""
    parts = [np.median(part) for part in np.array_split(control, min(DRIFT_PARTS, max(1, len(control) // 4)))]
    return float(max(parts) / min(parts) - 1.0)
