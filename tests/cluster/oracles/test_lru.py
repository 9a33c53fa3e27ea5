"""The cache of a lone prefill worker against LRU caches: exact stack distances, and block by block.

Fidelity engine is no cache of blocks, and is compared with a tree of whole nodes instead, request by request, too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import kvsweep
from benchmarks import validate
from benchmarks.validations import lru
from benchmarks.validations.lru import LADDER, apart, lone_cache, lru_tokens, quick_profile, whole_blocks
from kvsweep.trace.generate import generate
from kvsweep.trace.model import Ints, Trace
from kvsweep.trace.reuse import hit_ratios, hit_tokens, reuse
from tests.cluster.samples import trace

block_by_block = pytest.mark.parametrize("fidelity", ["paper"])
"""The engine evicts whole nodes of a tree, and the whole amount that it asks for: `tree_tokens`."""


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


class Node:
    """A run of pages that were inserted at once and not split since; a page's name says what is before it, too."""

    def __init__(self, pages: list[int], parent: Node | None, walk: int) -> None:
        self.pages, self.parent, self.walk, self.n_children = pages, parent, walk, 0
        if parent:
            parent.n_children += 1


class Tree:
    """An LRU cache of whole nodes; what it frees is what was asked for, not what was missing."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.walks = capacity, 0
        self.at: dict[int, Node] = {}  # by the first page

    @property
    def free(self) -> int:
        return self.capacity - sum(len(node.pages) for node in self.at.values())

    def walk(self, chain: list[int]) -> list[Node]:
        """Return the nodes on the way along `chain`, the last one split where it leaves the chain."""
        self.walks += 1
        passed: list[Node] = []
        done = 0
        while done < len(chain) and chain[done] in self.at:
            node = self.at[chain[done]]
            same = next((k for k, page in enumerate(node.pages) if chain[done + k : done + k + 1] != [page]), None)
            if same is not None:
                rest, node.pages = node.pages[same:], node.pages[:same]
                lower = self.at[rest[0]] = Node(rest, node, node.walk)
                lower.n_children, node.n_children = node.n_children - 1, 1
                for other in self.at.values():
                    if other.parent is node and other is not lower:
                        other.parent = lower
            node.walk = self.walks
            passed.append(node)
            done += len(node.pages)
        return passed

    def evict(self, pages: int, kept: list[Node]) -> None:
        """Free at least `pages`, if there are as many, by leaves that were passed least recently."""
        while pages > 0:
            leaves = [node for node in self.at.values() if not node.n_children and node not in kept]
            if not leaves:
                return
            oldest = min(leaves, key=lambda node: node.walk)
            del self.at[oldest.pages[0]]
            if oldest.parent:
                oldest.parent.n_children -= 1
            pages -= len(oldest.pages)

    def insert(self, chain: list[int]) -> None:
        passed = self.walk(chain)
        rest = chain[sum(len(node.pages) for node in passed) :]
        if rest:
            self.at[rest[0]] = Node(rest, passed[-1] if passed else None, self.walks)


def tree_tokens(case: Trace, capacity: int) -> Ints:
    """Return the hit tokens of each request, one at a time, in a tree of `capacity` pages."""
    size, tree = case.block_size, Tree(capacity)
    hits = np.zeros(len(case), dtype=np.int64)
    for i, length in enumerate(case.input_tokens.tolist()):
        chain = case.blocks[case.offsets[i] : case.offsets[i + 1]].tolist()[: length // size]
        matched = tree.walk(chain[: (length - 1) // size])
        hits[i] = size * sum(len(node.pages) for node in matched)
        asked = length - hits[i] + size  # a page more than is computed
        if tree.free * size < asked:
            tree.evict(-(-asked // size), matched)
        tree.insert(chain)
    return hits


@pytest.mark.parametrize("blocks", [150, 200, 500, 600, 1000, 2500, 4000])
@pytest.mark.parametrize("whole", [False, True])
def test_the_engine_is_a_tree_of_whole_nodes(blocks: int, whole: bool) -> None:
    case = whole_blocks(documents()) if whole else documents()
    expected = tree_tokens(case, blocks)
    assert cluster_tokens(case, blocks, "engine").tolist() == expected.tolist()
    assert expected.sum() != lru_tokens(case, blocks, LADDER[-1]).sum()


@pytest.mark.parametrize("seed", range(30))
def test_small_pools_of_the_engine_too(seed: int) -> None:
    case = families(seed)
    # A prompt and a token must be less than the pool.
    pool = (int(case.input_tokens.max()) + 1) // 4 + 1 + int(np.random.default_rng(seed).integers(0, 12))
    assert cluster_tokens(case, pool, "engine").tolist() == tree_tokens(case, pool).tolist()


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
    monkeypatch.setattr(lru, "PUBLISHED", {1000: round(reference, 3) + shift})
    monkeypatch.setattr(lru, "conversation", lambda: "made")
    monkeypatch.setattr(lru, "read_trace", lambda path: case)
    assert validate.main(["lru"]) == code
    said = capsys.readouterr().out
    assert "cluster, 1000 blocks" in said and ("off and unexplained: plain LRU, 1000 blocks" in said) == bool(code)
