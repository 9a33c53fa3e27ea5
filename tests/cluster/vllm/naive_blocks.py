"""The slow twin of the vLLM worker's KV blocks: lists and dicts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class Blocks:
    """Physical blocks: a queue of free ones, least recently released first, and what each holds."""

    def __init__(self, count: int) -> None:
        self.free: OrderedDict[int, None] = OrderedDict((block, None) for block in range(count))
        self.holders = [0] * count
        self.key_of: dict[int, int] = {}
        self.holding: dict[int, list[int]] = {}

    def match(self, keys: Sequence[int], limit: int) -> list[int]:
        """Return the blocks that hold the longest prefix of the first `limit` keys."""
        found: list[int] = []
        for key in keys[:limit]:
            if not self.holding.get(key):
                break
            found.append(self.holding[key][0])
        return found

    def idle(self, blocks: Sequence[int]) -> int:
        """Return how many of `blocks` nobody holds."""
        return sum(self.holders[block] == 0 for block in blocks)

    def hold(self, blocks: Sequence[int]) -> None:
        """Add a holder to each of `blocks`, out of the free queue where need be."""
        for block in blocks:
            if self.holders[block] == 0:
                del self.free[block]
            self.holders[block] += 1

    def take(self) -> int:
        """Return the block free for longest, whose content is forgotten."""
        block, _ = self.free.popitem(last=False)
        if block in self.key_of:
            self.holding[self.key_of.pop(block)].remove(block)
        self.holders[block] = 1
        return block

    def name(self, block: int, key: int) -> None:
        """State that `block` holds the content `key`, for others to find."""
        if block not in self.key_of:
            self.key_of[block] = key
            self.holding.setdefault(key, []).append(block)

    def release(self, blocks: Sequence[int]) -> None:
        """Drop a holder of each of `blocks`, tail first; those without any queue up at the back."""
        for block in reversed(blocks):
            self.holders[block] -= 1
            if self.holders[block] == 0:
                self.free[block] = None
