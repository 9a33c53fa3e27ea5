"""The cache of a lone prefill worker against LRU caches: exact stack distances, and block by block.

Fidelity engine: to be extended by its own rules of release, should they differ from those named in
`benchmarks.validate_lru`; stack distances of the reference stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cluster_samples import trace

import kvsweep
from benchmarks import validate, validate_lru
from benchmarks.validate_lru import LADDER, apart, lone_cache, lru_tokens, quick_profile, whole_blocks
from kvsweep.trace.generate import generate
from kvsweep.trace.model import Ints, Trace
from kvsweep.trace.reuse import hit_ratios, hit_tokens, reuse

block_by_block = pytest.mark.parametrize("fidelity", ["paper"])
"""The engine evicts whole nodes of a tree, and the whole amount that it asks for."""


def cluster_tokens(case: Trace, pages: int, fidelity: str) -> Ints:
    config = lone_cache(case.block_size, pages, fidelity)
    ds = kvsweep.cluster.run(apart(case), config, quick_profile(), check=len(case) < 100)
    assert not ds["rejected"].any() and not ds["queue_delay"].any()
    hits: Ints = ds["hit_tokens"].values[:, 0]
    return hits


def documents() -> Trace:
    """Return some 600 questions to 150 documents of about 30 blocks; most prompts end in the middle of a block."""
    made = generate("qa", 150, 3, input_tokens=2000.0, request_rate=1.0)
    missing = np.where(np.arange(len(made)) % 4 == 0, 0, 1 + np.arange(len(made)) % 63)
    return replace(made, input_tokens=64 * made.n_blocks - missing)


def families(seed: int) -> Trace:
    """Return prompts that share prefixes of any depth, whose last block may be partly filled."""
    rng = np.random.default_rng(seed)
    choices = [rng.integers(0, 2, 8).tolist() for _ in range(4)]
    requests = []
    for i in range(40):
        steps = choices[rng.integers(4)][: rng.integers(0, 9)]
        ids = [int("1" + "".join(map(str, steps[: k + 1])), 2) for k in range(len(steps))]
        requests.append((10.0 * i, max(1, 4 * len(ids) + int(rng.integers(-3, 4))), 1, ids))
    return trace(requests, page=4)


def reversed_prompts(case: Trace) -> Trace:
    """Return the trace with the blocks of every prompt in reverse, the order in which a request releases them."""
    rows = [case.blocks[a:b][::-1] for a, b in zip(case.offsets[:-1], case.offsets[1:], strict=True)]
    return replace(case, blocks=np.concatenate(rows))


def leaf_first_tokens(case: Trace, capacity: int) -> Ints:
    """Return the hit tokens of each request by stack distances of prompts touched from their last block on."""
    found = reuse(reversed_prompts(case))
    # The distance is that of the segment's deepest block, each one nearer to the head has one less.
    there = np.clip(np.where(found.distance >= 0, capacity - found.distance + found.n_blocks - 1, 0), 0, found.n_blocks)
    hits = np.zeros(len(case), dtype=np.int64)
    unbroken = np.ones(len(case), dtype=bool)
    for access in range(len(found.request) - 1, -1, -1):  # accesses of a request end with its head
        r = found.request[access]
        hits[r] += case.block_size * there[access] * unbroken[r]
        unbroken[r] &= there[access] == found.n_blocks[access]
    return hits


@block_by_block
@pytest.mark.parametrize("blocks", [200, 500, 1000, 2000, 4000])
def test_hits_of_whole_blocks_are_those_of_stack_distances(blocks: int, fidelity: str) -> None:
    """Every prompt is full blocks and a token: the cluster is an LRU cache that is told of leaves first."""
    case = whole_blocks(documents())
    expected = leaf_first_tokens(case, blocks)
    assert cluster_tokens(case, blocks + 1, fidelity).tolist() == expected.tolist()
    # Against the order of the reference only the heads of prompts stay longer, so nothing is hit less.
    reference = hit_tokens(case, reuse(case), blocks)
    assert (expected >= reference).all()
    assert 0 < expected.sum() - reference.sum() < 0.02 * case.input_tokens.sum()


def test_an_infinite_cache_hits_what_reuse_says(fidelity: str) -> None:
    case = whole_blocks(documents())
    tokens = cluster_tokens(case, 100_000, fidelity)
    assert int(tokens.sum()) / int(case.input_tokens.sum()) == hit_ratios(case, reuse(case), [None])[0] > 0.5


@block_by_block
@pytest.mark.parametrize("blocks", [150, 600, 2500])
def test_what_differs_from_the_reference_are_named_rules(blocks: int, fidelity: str) -> None:
    case = documents()
    ladder = [lru_tokens(case, blocks, rules) for rules in LADDER]
    assert ladder[0].tolist() == hit_tokens(case, reuse(case), blocks).tolist()
    assert cluster_tokens(case, blocks, fidelity).tolist() == ladder[-1].tolist()
    assert len({int(tokens.sum()) for tokens in ladder}) == len(ladder)


@block_by_block
@pytest.mark.parametrize("seed", range(30))
def test_small_pools_too(seed: int, fidelity: str) -> None:
    case = families(seed)
    largest = int((-(-case.input_tokens // 4)).max())
    pool = largest + int(np.random.default_rng(seed).integers(0, 12))
    assert cluster_tokens(case, pool, fidelity).tolist() == lru_tokens(case, pool, LADDER[-1]).tolist()


def test_validation_without_data_says_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KVSWEEP_DATA", raising=False)
    assert validate.main(["lru"]) == 0
    assert "skipped: no conversation_trace.jsonl" in capsys.readouterr().out
    assert validate.main(["nothing"]) == 2 and "choose from" in capsys.readouterr().err


@pytest.mark.parametrize(("shift", "code"), [(0.0, 0), (0.01, 1)])
def test_validation_tells_what_is_off(
    shift: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = documents()
    reference = hit_ratios(case, reuse(case), [1000])[0]
    monkeypatch.setattr(validate_lru, "PUBLISHED", {1000: round(reference, 3) + shift})
    monkeypatch.setattr(validate_lru, "conversation", lambda: "made")
    monkeypatch.setattr(validate_lru, "read_trace", lambda path: case)
    assert validate.main(["lru"]) == code
    said = capsys.readouterr().out
    assert "cluster, 1000 blocks" in said and ("off and unexplained: plain LRU, 1000 blocks" in said) == bool(code)
