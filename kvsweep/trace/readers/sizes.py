"""What size the blocks of a trace are, where its file lists their ids and not their size."""

from __future__ import annotations

from collections.abc import Sequence

CANDIDATES = (512, 16, 32, 64, 128, 256, 1024, 2048, 4096)
"""Sizes in the order in which they are tried; Mooncake's own first [token]."""
_ENOUGH = 20
"""Fewest requests with too few ids that tell of larger blocks; any request with too many tells of smaller ones."""


def fits(n_ids: int, n_input: int, size: int) -> bool:
    """Return whether a prompt of `n_input` tokens has `n_ids` blocks of `size`, the last partial one counted or not."""
    return n_ids in (n_input // size, -(-n_input // size))


def infer_block_size(counts: Sequence[tuple[int, int]], default: int) -> int:
    """Return the size [token] that fits every (ids, input tokens) of a trace, `default` where none does."""
    fewer = all(n_ids <= -(-n_input // default) for n_ids, n_input in counts)
    if fewer and len(counts) < _ENOUGH:
        return default
    sizes = (default, *(size for size in CANDIDATES if size != default))
    return next((size for size in sizes if all(fits(*count, size) for count in counts)), default)
