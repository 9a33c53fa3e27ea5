"""Which policy counts as the simplest; apart from the analysis so that single points need no xarray."""

from __future__ import annotations

from collections.abc import Iterable


def simplest_first(modes: Iterable[float], order: Iterable[float]) -> list[int]:
    """Return policy indices from the simplest to the most elaborate: fewest decision modes, then display order."""
    ranks = list(zip(modes, order, strict=True))
    return sorted(range(len(ranks)), key=lambda index: ranks[index])
