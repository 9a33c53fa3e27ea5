"""Unequal decode contexts: what share of the way to the longest context attention goes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsweep.calibrate.curves import held_out
from kvsweep.calibrate.kernels.profile import MICRO, SKEW_REPEATS, KernelProfile
from kvsweep.calibrate.sources.columns import Row
from kvsweep.cluster.inputs.step_profile import Table

Floats = NDArray[np.float64]


class Rest(NamedTuple):
    """What a step is besides attention."""

    tokens: Table
    sequences: Table

    def seconds(self, points: Floats) -> Floats:
        """Return the time [s] of a step at `points` (chunk, prior, decodes, context) without its attention."""
        tokens, rows = points[:, 0] + points[:, 2], points[:, 2] + (points[:, 0] > 0)
        return np.asarray(
            np.interp(tokens, self.tokens.axes[0], self.tokens.seconds)
            + np.interp(rows, self.sequences.axes[0], self.sequences.seconds)
        )


LEAST_SPREAD = 1.05
"""Rows count whose longest context alone would take this much longer than the mean one."""


def skew_table(kernels: KernelProfile, layers: int, rest: Rest) -> Table | None:
    """Return the shares [1] by decodes and prompt chunk, or None for a profile without skew.csv.

    A share is Σ(skewed − equal)/Σ(longest − equal) over the rows of a cell. Its error is that of a whole step.
    """
    if not kernels.skew:
        return None
    fit = [row for row in kernels.skew if not _out(row)]
    test = [row for row in kernels.skew if _out(row)]
    axes, shares = _shares(fit)
    scale = layers * MICRO / SKEW_REPEATS
    other = rest.seconds(np.array([[row["pc"], row["kp"], row["n"], row["kv_mean"]] for row in test]).reshape(-1, 4))
    errors = [
        abs((_predicted(axes, shares, row) * scale + more) / (row["t_skew_us"] * scale + more) - 1.0)
        for row, more in zip(test, other.tolist(), strict=True)
    ]
    axes, shares = _shares(kernels.skew)
    return Table(
        boundary="attention kernel, against the same with equal contexts",
        source=f"{kernels.gpu}: {kernels.files['skew']}; shares, and the error of a whole step",
        sha256=kernels.sha256["skew"],
        rows=len(kernels.skew),
        held_out_rows=len(test),
        held_out_error=float(np.mean(errors)) if errors else 0.0,
        axes=(tuple(axes[0]), tuple(axes[1])),
        seconds=tuple(share for line in shares for share in line),
    )


def _out(row: Row) -> bool:
    return held_out([row[name] for name in ("n", "pc", "kp", "kvs", "kv_big", "kv_mean")])


def _shares(rows: list[Row]) -> tuple[tuple[list[float], list[float]], list[list[float]]]:
    decodes = sorted({row["n"] for row in rows})
    chunks = sorted({row["pc"] for row in rows})
    sums: dict[tuple[float, float], list[float]] = {}
    for row in rows:
        if row["t_max_us"] > LEAST_SPREAD * row["t_mean_us"]:
            cell = sums.setdefault((row["n"], row["pc"]), [0.0, 0.0])
            cell[0] += row["t_skew_us"] - row["t_mean_us"]
            cell[1] += row["t_max_us"] - row["t_mean_us"]
    shares = []
    for n in decodes:
        line = []
        for chunk in chunks:
            # A cell nobody measured takes the next smaller batch's share, and no share where there is none.
            near = [m for m in decodes if m <= n and (m, chunk) in sums]
            part = sums[near[-1], chunk] if near else [0.0, 1.0]
            line.append(min(max(part[0] / part[1], 0.0), 1.0))
        shares.append(line)
    return (decodes, chunks), shares


def _predicted(axes: tuple[list[float], list[float]], shares: list[list[float]], row: Row) -> float:
    share = shares[axes[0].index(row["n"])][axes[1].index(row["pc"])] if row["n"] in axes[0] else 0.0
    return row["t_mean_us"] + share * max(row["t_max_us"] - row["t_mean_us"], 0.0)
