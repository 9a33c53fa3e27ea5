"""Known facts of the engines, which a simulator of them should show: each as a small run with its numbers.

Pages of 64 tokens; 1 us a token, 1 ms a decode step, and 1 ms a page on every path, unless said otherwise.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.cluster.engine.naive import L3, Group, Rules
from tests.cluster.engine.samples import RUNS, Run, pd
from tests.cluster.samples import pages, profile, trace

MS = 10**9


@pytest.fixture(params=sorted(RUNS))
def run(request: pytest.FixtureRequest) -> Run:
    return RUNS[request.param]


def l3(stop: str = "wait_complete", **changes: Any) -> L3:
    """Return a third tier of 0.1 ms a page and 1 ms a query."""
    # 64 000 byte a page: 1.5625e9 [1e-18 s] each.
    return L3(2**20, stop=stop, prefetch_threshold=64, query=MS, read=(0, 1_562_500_000), write=(0, 1_562_500_000),
              **changes)  # fmt: skip


def test_a_full_decode_worker_makes_the_prefill_worker_queue(run: Run) -> None:
    # One prompt of 10 pages at a time fits the decode worker, and answers for 200 ms.
    rules = pd(decode={"device_tokens": 1100, "reserved_decode_tokens": 256})
    found = run(trace([(0.0, 640, 200, ())] * 5), rules, profile())["requests"]
    waited = {cause: sum(request["delay"][cause] for request in found) for cause in found[0]["delay"]}
    assert max(waited, key=waited.__getitem__) == "decode_capacity"
    assert waited["decode_capacity"] > 100 * sum(waited.values()) // 101
    starts = [request["prefill_start"] for request in found]
    assert all(later - earlier > 200 * MS for earlier, later in zip(starts, starts[1:], strict=False))


def test_eviction_takes_the_whole_amount_not_what_is_missing(run: Run) -> None:
    # 12 288 tokens are asked for (and a page), 8192 are free: 193 pages go, of nodes of 16 pages, not the 65 missing.
    rules = pd({"device_tokens": 64 * (25 * 16 + 128), "host_tokens": 0, "chunk_tokens": 12_288})
    fill = [(float(i), 1024, 1, pages(100 * i, 16)) for i in range(25)]
    found = run(trace([*fill, (99.0, 12_288, 1, pages(10_000, 192))]), rules, profile())
    assert found["evictions"] == [(13 * 16, 0)]


def evicted_everywhere(host: int, **changes: Any) -> tuple[Any, Rules]:
    """Return a prompt that comes again when device and host have been used for others, and a cluster for it."""
    case = [(float(i), 16 * 64, 1, pages(100 * i, 16)) for i in range(12)] + [(99.0, 16 * 64, 1, pages(0, 16))]
    return trace(case), pd({"device_tokens": 64 * 40, "host_tokens": 64 * host}, l3=l3(**changes))


def test_l3_is_read_when_nothing_else_has_the_prompt(run: Run) -> None:
    case, rules = evicted_everywhere(80)
    again = run(case, rules, profile())["requests"][-1]
    assert again["hits"] == (0, 0, 15 * 64)
    # A query and 16 pages of 0.1 ms before the request is a candidate.
    assert again["prefill_start"] - again["arrival"] == 1 * MS + 16 * MS // 10


def test_a_host_as_large_as_the_device_never_reads_l3(run: Run) -> None:
    case, rules = evicted_everywhere(40)
    found = run(case, rules, profile())
    assert found["requests"][-1]["hits"] == (0, 0, 0)
    assert found["bytes"]["l3_read"] == [0] and found["bytes"]["l3_write"][0] > 0


def test_best_effort_misses_what_waiting_finds(run: Run) -> None:
    case, rules = evicted_everywhere(80, stop="best_effort")
    again = run(case, rules, profile())["requests"][-1]
    assert again["hits"] == (0, 0, 0) and again["prefill_start"] == again["arrival"]


@pytest.mark.parametrize("base, hits", [(0.5, 0), (1.05, 0), (2.6, 15)])
def test_a_timeout_takes_what_has_arrived(run: Run, base: float, hits: int) -> None:
    case, rules = evicted_everywhere(80, stop="timeout", timeout_base=int(base * MS), timeout_per_1024=0)
    again = run(case, rules, profile())["requests"][-1]
    assert again["hits"] == (0, 0, hits * 64)
    assert again["prefill_start"] - again["arrival"] == min(int(base * MS), 2_600_000_000)


def test_a_timeout_keeps_whole_batches(run: Run) -> None:
    case, rules = evicted_everywhere(80, stop="timeout", timeout_base=2 * MS, timeout_per_1024=0, batch_pages=3)
    again = run(case, rules, profile())["requests"][-1]
    # One query of each 3 pages: 6 ms. In 2 ms nothing has arrived; in 6.65 ms two batches of 3 pages.
    assert again["hits"] == (0, 0, 0)
    rules.l3 = dataclasses.replace(rules.l3, timeout_base=6_650_000_000)
    assert run(case, rules, profile())["requests"][-1]["hits"] == (0, 0, 6 * 64)


def test_a_prefetch_that_finds_nothing_evicts_the_host_all_the_same(run: Run) -> None:
    # Each prompt is inserted twice, so that it is copied when it comes again, and one that does not is never copied.
    case = [(i + j, 16 * 64, 1, pages(100 * i, 16)) for i in range(5) for j in (0.0, 0.5)]
    case.append((5.0, 16 * 64, 1, pages(900, 16)))
    rules = pd({"device_tokens": 64 * 40, "host_tokens": 64 * 80}, threshold=3, l3=l3())
    without = dataclasses.replace(rules, l3=None)
    assert run(trace(case), without, profile())["evictions"][0][1] == 0
    assert run(trace(case), rules, profile())["evictions"][0][1] >= 16


def test_what_the_device_has_cannot_leave_the_host(run: Run) -> None:
    case = [
        (0.0, 10 * 64, 1, pages(0, 10)), (0.0, 8 * 64, 1, pages(200, 8)),  # worker 0; worker 1, which writes it to L3
        (1.0, 8 * 64, 1, pages(100, 8)), (1.0, 64, 1, pages(900, 1)),  # worker 0; worker 1, which notices its copy
        (2.0, 8 * 64, 1, pages(200, 8)),  # worker 0
    ]  # fmt: skip

    def last(host: int) -> Any:
        groups = [Group("prefill", 64 * 20, 64 * pages_) for pages_ in (host, 80)] + [Group("decode", 262_144)]
        found = run(trace(case), Rules(groups, l3=l3()), profile())
        assert found["requests"][-1]["prefill_worker"] == 0 and found["bytes"]["l3_write"][1] > 0
        return found["requests"][-1]["hits"]

    # Of the 21 pages of the host 18 are those of the two prompts that the device has, too.
    assert last(21) == (0, 0, 0)
    assert last(60) == (0, 0, 7 * 64)


@pytest.mark.parametrize("reserve, retracts", [(0, True), (512, False)])
def test_headroom_trades_occupancy_for_retraction(run: Run, reserve: int, retracts: bool) -> None:
    rules = pd(decode={"device_tokens": 64 * 24, "reserved_decode_tokens": reserve})
    found = run(trace([(0.0, 256, 500, ())] * 4), rules, profile())
    assert (found["retractions"][1] > 0) == retracts
    # With it, they wait for their turn instead.
    assert all(request["finish"] > 0 for request in found["requests"])


def test_headroom_keeps_requests_out(run: Run) -> None:
    def together(reserve: int) -> int:
        rules = pd(decode={"device_tokens": 64 * 40, "reserved_decode_tokens": reserve})
        found = run(trace([(0.0, 256, 200, ())] * 8), rules, profile())["requests"]
        first_out = min(request["finish"] for request in found)
        return sum(request["first_token"] < first_out for request in found)

    assert together(512) < together(256) < together(0)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("colocated", [True, False])
def test_retracted_requests_come_back(run: Run, overlap: bool, colocated: bool) -> None:
    tight: dict[str, Any] = {"device_tokens": 64 * 12, "reserved_decode_tokens": 0}
    groups = [Group("colocated", **tight)] if colocated else [Group("prefill", 262_144), Group("decode", **tight)]
    rules = Rules(groups, overlap=overlap, conservativeness=0.1)
    found = run(trace([(0.01 * i, 64, 450, ()) for i in range(6)]), rules, profile())
    assert sum(found["retractions"]) > 0
    assert all(not request["rejected"] and request["finish"] > 0 for request in found["requests"])


def test_a_prompt_of_several_chunks_is_found_whole(run: Run) -> None:
    case = [(0.0, 12_288, 1, pages(0, 192)), (1.0, 12_288, 1, pages(0, 192))]
    again = run(trace(case), pd(), profile())["requests"][1]
    assert again["hits"] == (12_288 - 64, 0, 0) and again["uncached"] == 64
