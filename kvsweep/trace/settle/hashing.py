"""Numbers for prefix-chained blocks of content, as an engine's block hashes chain."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from hashlib import blake2b


class PrefixIds:
    """Numbers (prefix, content) pairs from 0 in order of first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, Hashable], int] = {}

    def number(self, parent: int, content: Hashable) -> int:
        """Return the id of the block of `content` after the block `parent`, -1 for none."""
        return self._numbers.setdefault((parent, content), len(self._numbers))

    def chain(self, contents: Sequence[Hashable]) -> list[int]:
        """Return the ids of a prompt's blocks; equal ids have equal contents up to and with them."""
        parent = -1
        ids = []
        for content in contents:
            parent = self.number(parent, content)
            ids.append(parent)
        return ids


def token_blocks(tokens: Sequence[int], block_size: int) -> list[bytes]:
    """Return digests of the full blocks of `tokens`; what does not fill a block is never shared and left out."""
    packed = memoryview(array("Q", tokens).tobytes())
    step = 8 * block_size
    return [blake2b(packed[at : at + step], digest_size=16).digest() for at in range(0, len(packed) - step + 1, step)]
