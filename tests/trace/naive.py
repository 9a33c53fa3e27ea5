"""Slow, obvious twins of the trace statistics and conversions: one request, one block at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from kvsweep.trace.model import Trace

Prompt = list[int]


def prompts(trace: Trace) -> list[Prompt]:
    """Return the block ids of every request."""
    return [trace.blocks[a:b].tolist() for a, b in zip(trace.offsets, trace.offsets[1:], strict=False)]


def lru_hit_ratio(trace: Trace, capacity: float) -> float:
    """Return the token-weighted hit ratio of an LRU cache: longest cached prefix, then all blocks touched."""
    cached: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for prompt, n_input in zip(prompts(trace), trace.input_tokens.tolist(), strict=True):
        found = next((i for i, block in enumerate(prompt) if block not in cached), len(prompt))
        hits += min(found * trace.block_size, n_input)
        for block in prompt:
            cached[block] = None
            cached.move_to_end(block)
            if len(cached) > capacity:
                cached.popitem(last=False)
    return hits / int(trace.input_tokens.sum())


def reuses(trace: Trace) -> tuple[list[int], list[float]]:
    """Return, sorted, distinct blocks and time between every touch of a block and the request that has it next."""
    order: list[int] = []  # most recent last
    last: dict[int, float] = {}
    distances, seconds = [], []
    for prompt, arrival in zip(prompts(trace), trace.arrival.tolist(), strict=True):
        for block in prompt:
            if block in last:
                distances.append(len(order) - 1 - order.index(block))
                seconds.append(arrival - last[block])
        for block in prompt:
            if block in last:
                order.remove(block)
            order.append(block)
            last[block] = arrival
    return sorted(distances), sorted(seconds)


def numbered_by_prefix(lists: Sequence[Prompt]) -> list[Prompt]:
    """Return each id replaced by the number of the list up to and with it, in order of first appearance."""
    numbers: dict[tuple[int, ...], int] = {}
    return [[numbers.setdefault(tuple(ids[: i + 1]), len(numbers)) for i in range(len(ids))] for ids in lists]


def divided(trace: Trace, block_size: int) -> list[Prompt]:
    """Return the prompts with every block cut into pages of `block_size`, none beyond the end of the prompt."""
    parts = trace.block_size // block_size
    return numbered_by_prefix([
        [block * parts + i for block in prompt for i in range(parts)][: -(-n_input // block_size)]
        for prompt, n_input in zip(prompts(trace), trace.input_tokens.tolist(), strict=True)
    ])  # fmt: skip


def merged(trace: Trace, block_size: int) -> list[Prompt]:
    """Return the prompts with as many blocks put together as make one of `block_size`, incomplete ones left out."""
    parts = block_size // trace.block_size
    return numbered_by_prefix([
        [prompt[i + parts - 1] for i in range(0, len(prompt) - parts + 1, parts)] for prompt in prompts(trace)
    ])  # fmt: skip
