"""Eviction ``tlru`` by hand: the tail that a conversation can do without goes before what another one needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import xarray as xr

import kvsweep
from kvsweep.cluster.inputs.config import Eviction, Gateway, Retention, Retrieval
from tests.cluster.engine import samples as engine_samples
from tests.cluster.engine.core import config_of, profile_of
from tests.cluster.paper import test_twin as test_cluster_twin
from tests.cluster.samples import PAGE, cluster, pages, profile, trace

A, B = pages(0, 10), pages(100, 8)
XI = 2 * PAGE + 1
"""Prompts are a token longer than their pages, so that two pages of each are surplus."""


def run(requests: list[Any], fidelity: str, room: int, sessions: list[int] | None = None, **figures: Any) -> xr.Dataset:
    config = cluster(
        {"device_tokens": room * PAGE, "host_tokens": 0, "chunk_tokens": 4 * PAGE}, fidelity=fidelity,
        write={"policy": "none"}, eviction={"policy": "tlru", **figures},
    )  # fmt: skip
    return kvsweep.cluster.run(trace(requests, sessions=sessions), config, profile(n_layers=4), check=True)


def hit_pages(ds: xr.Dataset) -> int:
    """Return the pages that the last request finds."""
    return int(ds["hit_tokens"].values[-1, 0]) // PAGE


def asked(room_for: int, last: range) -> list[Any]:
    """Return B, then A, then a prompt of so many pages, then `last` again."""
    prompts = (B, A, pages(200, room_for), last)
    return [(float(i), PAGE * len(ids) + 1, 1, ids) for i, ids in enumerate(prompts)]


@pytest.mark.parametrize(
    ("shortfall", "left_of_b", "left_of_a"), [(1, 7, 10), (2, 6, 10), (3, 6, 9), (4, 6, 8), (5, 5, 8), (6, 4, 8)]
)
def test_surplus_goes_first_the_oldest_of_it_before_the_rest(shortfall: int, left_of_b: int, left_of_a: int) -> None:
    """18 pages are held; the third prompt needs a page more than its full ones."""
    for last, left in ((B, left_of_b), (A, left_of_a)):
        found = run(asked(5, last), "paper", 24 - shortfall, xi_tokens=XI, growth_tokens=0)
        assert hit_pages(found) == left
        found = run(asked(5, last), "paper", 24 - shortfall, xi_tokens=XI + 100, growth_tokens=100)
        assert hit_pages(found) == left
    lru = run(asked(5, B), "paper", 24 - shortfall, policy="lru")
    assert hit_pages(lru) == 8 - shortfall


def test_growth_is_the_mean_over_turns() -> None:
    """Two more pages from B to A, three from the third prompt to B: 160 tokens a turn."""
    sessions = [0, 0, 1, 1]
    for shortfall, left in ((2, 6), (4, 6), (5, 5)):
        found = run(asked(5, B), "paper", 24 - shortfall, sessions, xi_tokens=XI + 160)
        assert hit_pages(found) == left


def test_engines_give_up_nodes_that_begin_in_the_surplus() -> None:
    """Nodes of 4 pages: the last one of A begins where A's surplus does, the last one of B before its own."""
    a, c = pages(0, 12), pages(200, 2)

    def requests(last: tuple[int, range]) -> list[Any]:
        prompts = ((9 * PAGE - 3, B), (12 * PAGE + 1, a), (2 * PAGE + 1, c), last)
        return [(float(i), length, 1, ids) for i, (length, ids) in enumerate(prompts)]

    figures = {"xi_tokens": 4 * PAGE + 1, "growth_tokens": 0}
    old, young = (9 * PAGE - 3, B), (12 * PAGE + 1, a)
    assert hit_pages(run(requests(old), "engine", 23, **figures)) == 8
    assert hit_pages(run(requests(young), "engine", 23, **figures)) == 8
    assert hit_pages(run(requests(old), "engine", 23, policy="lru")) == 4
    assert hit_pages(run(requests(young), "engine", 23, policy="lru")) == 12


NOTHING, ALL = 0, 10**9
"""Of nothing, and of all pages, a conversation can do without."""


@pytest.mark.parametrize("xi", [NOTHING, ALL])
@pytest.mark.parametrize("seed", range(40))
def test_nothing_or_all_in_surplus_is_lru(seed: int, xi: int, fidelity: str) -> None:
    """Answers of colocated workers among it, which are stored beyond the prompt."""
    if fidelity == "engine":
        made, rules, service = engine_samples.random_case(seed)
        rules.retrieval, rules.eviction, rules.ttl = "default_policy", "lru", None
        config, service = config_of(rules), profile_of(rules, service)
    else:
        made, config, service = test_cluster_twin.random_case(seed)
        config = replace(config, retrieval=Retrieval(), retention=Retention(), gateway=Gateway())
    lru, tail = (
        kvsweep.cluster.run(made, replace(config, eviction=eviction), service)
        for eviction in (Eviction(), Eviction(policy="tlru", xi_tokens=xi, growth_tokens=(None, 0, 5)[seed % 3]))
    )
    assert tail.drop_attrs().identical(lru.drop_attrs())


def test_pools_of_that_are_tight_enough() -> None:
    """Pages are evicted in many of the cases above, and other surpluses evict others."""
    differ = evicted = 0
    for seed in range(40):
        made, config, service = test_cluster_twin.random_case(seed)
        config = replace(config, retrieval=Retrieval(), retention=Retention(), gateway=Gateway())
        lru, tail = (
            kvsweep.cluster.run(made, replace(config, eviction=eviction), service)
            for eviction in (Eviction(), Eviction(policy="tlru", xi_tokens=2 * config.page_size))
        )
        evicted += bool(lru["evictions"].sum() > 0)
        differ += not tail.drop_attrs().identical(lru.drop_attrs())
    assert evicted > 15 and differ > 3, (evicted, differ)


def test_the_result_says_what_it_knew_beforehand() -> None:
    told = run(asked(5, B), "engine", 20, [0, 0, 1, 1], xi_tokens=XI).attrs
    assert told["kvsweep_growth_tokens"] == 160 and "become, the mean over the trace" in told["kvsweep_foresight"]
    stated = run(asked(5, B), "engine", 20, [0, 0, 1, 1], xi_tokens=XI, growth_tokens=7).attrs
    assert stated["kvsweep_growth_tokens"] == 7 and "kvsweep_foresight" not in stated
