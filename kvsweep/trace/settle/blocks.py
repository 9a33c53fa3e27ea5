"""What size the blocks of a file are, where it lists their ids and not their size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsweep.trace.model import Ints

CANDIDATES = (512, 16, 32, 64, 128, 256, 1024, 2048, 4096)
"""Sizes in the order in which they are tried, before any other that fits; Mooncake's own first [token]."""
_ENOUGH = 2
"""Fewest prompts that tell of a size which is not the documented one."""


class Size(NamedTuple):
    """The size taken [token], and why."""

    tokens: int
    why: str


def fits(n_ids: Ints, n_input: Ints, size: int) -> NDArray[np.bool_]:
    """Return which prompts have as many ids as blocks of `size`, the last partial one counted or not."""
    found: NDArray[np.bool_] = (n_ids == n_input // size) | (n_ids == -(-n_input // size))
    return found


def settled_size(n_ids: Ints, n_input: Ints, documented: int, said: int | None) -> Size:
    """Return the size of blocks [token] by which prompts of `n_input` tokens have `n_ids` ids.

    What is `said` is taken; else the `documented` size (0 for none) where it fits every prompt, else one that does: of
    `CANDIDATES`, or the roundest there is. Where none fits, or one prompt alone tells it, it is the documented one.
    """
    if said is not None:
        return Size(said, "--block-size")
    if documented and fits(n_ids, n_input, documented).all():
        return Size(documented, "as documented")
    if len(n_ids) >= _ENOUGH or not documented:
        size = next((size for size in CANDIDATES if fits(n_ids, n_input, size).all()), None) or _roundest(
            n_ids, n_input
        )
        if size:
            return Size(size, "found: the counts of ids fit")
    return Size(documented or CANDIDATES[0], "as documented" if documented else "assumed")


def _roundest(n_ids: Ints, n_input: Ints) -> int:
    """Return the size that most twos divide among those that give every prompt its ids, 0 for none."""
    whole = n_ids > 0
    n_ids, n_input = n_ids[whole], n_input[whole]
    if not len(n_ids):
        return 0
    # The last partial block counted: n = ceil(L / s); not counted: n = floor(L / s).
    counted = (
        (-(-n_input // n_ids)).max(),
        np.where(n_ids > 1, -(-n_input // np.maximum(n_ids - 1, 1)) - 1, 2**31).min(),
    )
    dropped = (n_input // (n_ids + 1) + 1).max(), (n_input // n_ids).min()
    for low, high in (counted, dropped):
        if 1 <= low <= high:
            return _most_even(int(low), int(high))
    return 0


def _most_even(low: int, high: int) -> int:
    """Return the number of `low` to `high` that the largest power of two divides, the least of these."""
    step = 1
    while -(-low // (2 * step)) * 2 * step <= high:
        step *= 2
    return -(-low // step) * step
