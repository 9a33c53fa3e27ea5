"""Agent sessions, one a line (weka layout): turns with times inside the session [s], think times, local block ids.

Source: callanjfox/kv-cache-tester. Two spellings: short (``bs, t, in, out, api, think, d, h`` with h as pairs of
first id and count) and long (``block_size, t, in, out, api_time, think_time, hash_ids``).
"""

from __future__ import annotations

import numpy as np

from kvsweep.trace.build import Builder
from kvsweep.trace.model import Trace
from kvsweep.trace.record import MAX_ID, Record
from kvsweep.trace.source import Source

NAME = "agent"
WHAT = "JSON lines, a session each: bs, requests [{t [s], in, out, api [s], think [s], d, h}] (weka layout)"
MAX_BLOCK = 65536


def matches(first: Record) -> bool:
    """Return whether the first record of a file is of this format."""
    return isinstance(first.values.get("requests"), list) and ("bs" in first or "block_size" in first)


def read(source: Source) -> Trace:
    """Return the trace; session starts, which the file lacks, are a Poisson process. Raises InputError."""
    builder = Builder(source.notes)
    rng = np.random.default_rng(source.options.seed)
    start, base, n_sessions, block_size = 0.0, 0, 0, 0
    for record in source:
        size_name = "bs" if "bs" in record else "block_size"
        size = record.count(size_name, 1, MAX_BLOCK)
        if block_size not in (0, size):
            raise record.error(size_name, f"is {size}", f"{block_size}, as in the sessions before")
        block_size = size
        base = _add_session(builder, record, start, base, block_size)
        start += rng.exponential(1 / source.options.session_rate)
        n_sessions += 1
    rate = source.options.session_rate
    source.notes.assumed(
        f"session starts: Poisson, {rate:.4g} sessions/s (one in {1 / rate:.4g} s), seed {source.options.seed}",
        n_sessions,
    )
    return builder.finish(block_size, f"{NAME} {source.path.name}", as_in_file=False)


def _add_session(builder: Builder, record: Record, start: float, base: int, block_size: int) -> int:
    """Add the turns of a session that starts at `start` [s]; return the first block id the next one may use."""
    session = record.label("id")
    label = (len(builder), session)  # ids may repeat from file to file that were joined
    top = base
    spawned = finished = 0.0
    latest = [0.0, 0.0]
    for turn in record.parts("requests"):
        if isinstance(turn.values.get("requests"), list):
            builder.notes.dropped("sub-agents with requests of their own inside a turn")
            continue
        time = turn.number("t")
        inner = int(turn.count("d", 0, 1) if "d" in turn else 0)
        if inner and (time < latest[1] or not latest[1]):
            spawned = finished
        latest[inner] = time
        if inner:
            builder.notes.assumed("sub-agent turns: their clock starts when the turn before them ends")
        began = time + (spawned if inner else 0.0)
        think, ended = _pauses(builder, turn, began, finished)
        if not inner:
            finished, latest[1] = ended, 0.0
        lengths = turn.count("in"), turn.count("out")
        runs = _runs(turn, lengths[0], block_size, base)
        builder.add(start + began, lengths, runs=runs, session=label, group=label, think=think)
        top = max([top, *(first + count for first, count in zip(*runs, strict=True))])
    return top


def _pauses(builder: Builder, turn: Record, began: float, finished: float) -> tuple[float, float]:
    """Return the think time before a turn and the end of it [s]; what is null is taken from the turn before."""
    api = next((turn.number(name) for name in ("api", "api_time") if name in turn), None)
    if api is None:
        builder.notes.assumed("turns without a duration: taken as ending at once")
    think = next((turn.number(name) for name in ("think", "think_time") if name in turn), None)
    if think is None:
        builder.notes.assumed("turns without a think time: taken as the gap after the turn before")
        think = max(0.0, began - finished)
    return think, began + (api or 0.0)


def _runs(turn: Record, n_input: int, block_size: int, base: int) -> tuple[list[int], list[int]]:
    """Return first ids and counts of the runs of a turn, ids moved up by `base`."""
    name = "h" if "h" in turn else "hash_ids"
    values = turn.ids(name) if name in turn else []
    if name == "h" and len(values) % 2:
        raise turn.error("h", f"{len(values)} numbers", "pairs of first block id and count")
    firsts, counts = (values[::2], values[1::2]) if name == "h" else (values, [1] * len(values))
    most = -(-n_input // block_size)
    if sum(counts) > most:
        raise turn.error(
            name, f"{sum(counts)} blocks for {n_input} tokens", f"at most {most} blocks of {block_size} tokens"
        )
    if any(first > MAX_ID // 2 for first in firsts) or base > MAX_ID // 4:
        raise turn.error(name, "ids too large to tell sessions apart", f"0 to {MAX_ID // 2}")
    return [first + base for first in firsts], counts
