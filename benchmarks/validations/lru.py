"""Hit ratios of the cluster simulator beside those of plain LRU caches, on the Mooncake conversation trace.

One prefill worker of a device pool of k pages of 512 tokens, no host, all else ample, and arrivals so far apart that
nothing overlaps: what is left of the cluster is its cache. It is no plain LRU cache of blocks, as real engines' caches
are none; each of three rules takes or gives a few hits:

- *full pages*: only full pages of a prompt stay, and at most all but one of its tokens can be reused
  (``kvsweep/cluster/paper/README.md`` §1), while the reference keeps a partly filled last block as well;
- *leaf first*: what a request releases goes from its deepest page on (§6), while the reference touches blocks from the
  first to the last, so that the head of a prompt goes first and the rest of it is worth nothing;
- *rest*: the page of the tokens after the last full page needs room while the request is there (§5, §6).

Added one by one to the reference they must give the hits of the cluster, request by request, to the token. Where every
block counts as full and has a token after it, and the pool a page for that token, *leaf first* alone is left.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import kvsweep
from benchmarks.data import Skipped, conversation
from benchmarks.figures import Figure, print_rows
from kvsweep.cluster.inputs.config import ClusterConfig, parse_config
from kvsweep.cluster.inputs.service_profile import Profile, parse_profile
from kvsweep.trace import Trace, read_trace
from kvsweep.trace.model import Ints
from kvsweep.trace.reuse import hit_tokens, reuse

PUBLISHED = {
    1_000: 0.045, 5_000: 0.113, 10_000: 0.215, 20_000: 0.293, 50_000: 0.362, 100_000: 0.371, None: 0.3736,
}  # fmt: skip
"""Token-weighted hit ratios of LRU caches by their blocks of 512 tokens, None for infinite [1]."""
LADDER = ((), ("full pages",), ("full pages", "leaf first"), ("full pages", "leaf first", "rest"))
"""The rules of the cluster's cache that plain LRU lacks, added one by one."""
GAP_SECONDS = 300.0


def lru_tokens(trace: Trace, capacity: int, rules: Sequence[str] = ()) -> Ints:
    """Return the hit tokens of each request in an LRU cache of `capacity` blocks, block by block; (request)."""
    size = trace.block_size
    cache: OrderedDict[int, None] = OrderedDict()
    hits = np.zeros(len(trace), dtype=np.int64)
    for i, length in enumerate(trace.input_tokens.tolist()):
        chain = trace.blocks[trace.offsets[i] : trace.offsets[i + 1]].tolist()
        cap = len(chain)
        if "full pages" in rules:
            chain, cap = chain[: length // size], (length - 1) // size
        found = next((k for k, block in enumerate(chain) if block not in cache), len(chain))
        hits[i] = min(min(found, cap) * size, length)
        for block in reversed(chain) if "leaf first" in rules else chain:
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > capacity - ("rest" in rules and length % size > 0):
            cache.popitem(last=False)
    return hits


def apart(trace: Trace) -> Trace:
    """Return the trace with arrivals so far apart that no request meets another."""
    return replace(trace, arrival=np.arange(len(trace)) * GAP_SECONDS)


def whole_blocks(trace: Trace) -> Trace:
    """Return the trace with all blocks of a prompt full, and one token after them that is the request's own."""
    return replace(trace, input_tokens=trace.n_blocks * trace.block_size + 1)


def lone_cache(page_size: int, pages: int, fidelity: str = "paper") -> ClusterConfig:
    """Return a cluster whose one prefill worker has a device pool of `pages` and no host."""
    ample = {"tp": 1, "device_tokens": 10**9, "max_running": 4096}
    chunk = -(-131_072 // page_size) * page_size
    prefill = {"role": "prefill", **ample, "device_tokens": pages * page_size, "chunk_tokens": chunk}
    return parse_config(
        {"fidelity": fidelity, "page_size": page_size, "workers": [prefill, {"role": "decode", **ample}]}, "lone cache"
    )


def quick_profile() -> Profile:
    """Return a profile in which everything takes next to no time."""
    copy = {"boundary": "whole", "bytes_per_s": 1e12}
    return parse_profile(
        {
            "name": "quick", "tp": 1, "kv_bytes_per_token": 1.0, "handoff": copy, "h2d": copy, "d2h": copy,
            "prefill": {"boundary": "whole", "token_seconds": 1e-7},
            "decode": {"boundary": "whole", "batch": [1], "base_seconds": [1e-6], "context_token_seconds": [0.0]},
        },
        "quick profile",
    )  # fmt: skip


def cluster_tokens(trace: Trace, pages: int) -> Ints:
    """Return the hit tokens of each request of `trace` in the simulator; (request)."""
    ds = kvsweep.cluster.run(apart(trace), lone_cache(trace.block_size, pages), quick_profile())
    if ds["rejected"].any() or ds["queue_delay"].any():
        raise AssertionError("requests met each other, or did not fit")
    return np.asarray(ds["hit_tokens"].values[:, 0])


def measure() -> list[Figure]:
    """Return the hit ratio of each capacity beside its reference; print what makes the difference."""
    path = conversation()
    if path is None:
        raise Skipped("no conversation_trace.jsonl; set KVSWEEP_DATA to the folder of published traces")
    trace = read_trace(path)
    exact, infinite = reuse(trace), int(trace.blocks.max()) + 2
    found, rows = [], [("blocks", "reference", "plain LRU", *(f"+ {s[-1]}" for s in LADDER[1:]), "cluster", "of whole")]
    for blocks, reference in PUBLISHED.items():
        pages, name = blocks or infinite, f"{blocks or 'infinite'} blocks"
        plain, whole = hit_tokens(trace, exact, blocks), whole_blocks(trace)
        ladder = [lru_tokens(trace, pages, rules) for rules in LADDER]
        simulated = cluster_tokens(trace, pages)
        # The partly filled last block of a prompt that is hit as a whole counts by its tokens.
        of_whole = np.minimum(cluster_tokens(whole, pages + 1), trace.input_tokens)
        ratios = [int(tokens.sum()) / int(trace.input_tokens.sum()) for tokens in (plain, *ladder, simulated, of_whole)]
        steps = [f"{after - before:+.5f}" for before, after in zip(ratios[1:4], ratios[2:5], strict=True)]
        rows.append((name, f"{reference}", f"{ratios[0]:.5f}", *steps, *(f"{ratio:.5f}" for ratio in ratios[-2:])))
        rounds = abs(ratios[0] - reference) <= 0.5 * 10 ** -(4 if blocks is None else 3)
        leaf_first = np.minimum(lru_tokens(whole, pages, ("leaf first",)), trace.input_tokens)
        verdicts = (
            ("plain LRU", ratios[0], "rounds to it", rounds and (ladder[0] == plain).all()),
            ("cluster", ratios[-2], "differs by its rules, to the token", (simulated == ladder[-1]).all()),
            (
                "cluster, whole blocks",
                ratios[-1],
                "differs by leaf first, to the token",
                (of_whole == leaf_first).all(),
            ),
        )
        found += [
            Figure(f"{what}, {name}", ratio, "1", "reference", reference, ratio / reference, bar, bool(passed))
            for what, ratio, bar, passed in verdicts
        ]
    print("\ntoken-weighted hit ratio, and what each rule of the cluster's cache adds to plain LRU")
    print_rows(rows)
    return found
