"""The thirteen conformance cases of the engines' semantics, to be checked by hand, with their numbers.

Pages of 64 tokens, chunks of 4096, at most 32 requests, fcfs, write through, unless said otherwise. The profile of
`tests.cluster.samples` takes 1 us a token, 1 ms a decode step, and 1 ms a page on every path.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.engine.naive import Group, Rules
from tests.cluster.engine.samples import RUNS, Run, pd
from tests.cluster.samples import pages, profile, trace

US, MS = 10**6, 10**9
PATHS = ("handoff", "h2d", "d2h")


@pytest.fixture(params=sorted(RUNS))
def run(request: pytest.FixtureRequest) -> Run:
    return RUNS[request.param]


def test_1_a_prompt_is_never_found_whole(run: Run) -> None:
    case = [(0.0, 128, 1, (1, 2)), (1.0, 128, 1, (1, 2)), (2.0, 129, 1, (1, 2)), (3.0, 64, 1, (1,))]
    found = run(trace(case), pd(), profile())["requests"]
    assert [request["hits"] for request in found] == [(0, 0, 0), (64, 0, 0), (128, 0, 0), (0, 0, 0)]
    assert [request["uncached"] for request in found] == [128, 64, 1, 64]


@pytest.mark.parametrize("last, ends", [(64, 8064), (65, 8065)])
def test_2_a_step_shares_its_budget_in_whole_pages(run: Run, last: int, ends: int) -> None:
    case = [(0.0, 1000, 1, ()), (0.0, 2000, 1, ()), (0.0, 5000, 1, ()), (0.0, last, 1, ())]
    a, b, d, e = run(trace(case), pd(), profile())["requests"]
    # {A 1000, B 2000, D 1024}, of a budget of 4096 - 1024 - 2048 - 1024 = 0.
    assert [request["prefill_start"] for request in (a, b, d)] == [0, 0, 0]
    assert [request["prefill_end"] for request in (a, b)] == [4024 * US] * 2
    # {D 3976, E at most 64}: the budget left is 4096 - 4032 = 64.
    assert d["prefill_end"] == (4024 + 3976 + 64) * US
    assert (e["prefill_start"], e["prefill_end"]) == (4024 * US, ends * US)


@pytest.mark.parametrize("schedule, starts, hits, ends", [("fcfs", 0, 0, 2000), ("lpm", 1000, 960, 1040)])
def test_3_equal_prompts_share_a_step_but_not_their_pages(
    run: Run, schedule: str, starts: int, hits: int, ends: int
) -> None:
    case = [(0.0, 1000, 1, pages(1, 15)), (0.0, 1000, 1, pages(1, 15))]
    first, second = run(trace(case), pd(schedule=schedule), profile())["requests"]
    assert first["hits"] == (0, 0, 0) and first["prefill_start"] == 0
    assert second["hits"] == (hits, 0, 0)
    assert (second["prefill_start"], second["prefill_end"]) == (starts * US, ends * US)


@pytest.mark.parametrize("arrival", [0.002, 0.006])
def test_4_chunks_can_be_reused_while_their_request_runs(run: Run, arrival: float) -> None:
    case = [(0.0, 10_000, 1, pages(1, 156)), (arrival, 10_000, 1, pages(1, 156))]
    first, second = run(trace(case), pd(), profile())["requests"]
    # Chunk 2 leaves no budget, so that whoever arrives in chunk 1 or 2 is admitted with chunk 3, of a budget of
    # 4096 - 1856 = 2240, when both chunks before it are in the tree. For 4096 hits chunk 2 would have to leave budget.
    assert second["hits"] == (8192, 0, 0)
    assert second["prefill_start"] == 8192 * US
    assert first["prefill_end"] == second["prefill_end"] == (8192 + 2 * 1808) * US


def test_5_what_is_cached_is_sent_all_the_same(run: Run) -> None:
    cold = run(trace([(0.0, 128, 1, (1, 2))]), pd(), profile())
    warm = run(trace([(0.0, 128, 1, (1, 2)), (1.0, 128, 1, (1, 2))]), pd(), profile())
    assert warm["requests"][1]["hits"] == (64, 0, 0)
    assert warm["bytes"]["handoff"] == [2 * bytes_ for bytes_ in cold["bytes"]["handoff"]] == [2 * 2 * 64_000]


def test_6_a_decode_worker_keeps_room_for_answers_without_holding_it(run: Run) -> None:
    # The case speaks of 1000 free tokens; pools are whole pages: 960 of them.
    small = pd(decode={"device_tokens": 1000})
    case = [(0.0, 500, 128, ()), (0.0, 448, 128, ())]
    found = run(trace(case), small, profile())["requests"]
    # max(500 + 512, 500 + 128) > 960; max(448 + 512, 448 + 128) = 960.
    assert [request["rejected"] for request in found] == [True, False]
    assert found[1]["delay"]["decode_capacity"] == 0
    # Of the same pool two prompts of 448 hold 896 tokens, but the headroom of the first keeps the second out until
    # the first is through, and has left: with overlap, a wasted step of 1 ms later.
    both = run(trace([(0.0, 448, 128, ()), (0.0, 448, 1, ())]), small, profile())["requests"]
    assert both[1]["delay"]["decode_capacity"] == both[0]["finish"] + 1 * MS


def test_7_the_host_is_inclusive(run: Run) -> None:
    # 128 prompts of 64 pages fill 8192 of the 8193 pages of the host, half of which double what the device has.
    def filled(n: int) -> Any:
        return run(trace([(float(i), 4096, 1, pages(100 * i, 64)) for i in range(n)]), pd(), profile())

    assert filled(128)["evictions"][0][1] == 0
    # Room for the next is made of what is on the host alone, one node.
    assert filled(129)["evictions"][0][1] == 64


def test_8_loading_overlaps_with_computing_layer_by_layer(run: Run) -> None:
    # 32B, TP 2: 64 layers, 131 072 byte a token and rank, 25 GB/s; 1.5 ms a layer.
    model = profile(
        kv_bytes_per_token=131_072.0, **{path: {"boundary": "whole", "bytes_per_s": 25e9} for path in PATHS},
        prefill={"boundary": "whole", "fixed_seconds": 0.096, "token_seconds": 0.0},
    )  # fmt: skip
    case = [(0.0, 8256, 1, pages(1, 129)), (1000.0, 12_000, 1, ()), (2000.0, 8256, 1, pages(1, 129))]
    tight = pd({"device_tokens": 200 * 64, "host_tokens": 400 * 64}, n_layers=64)
    again = run(trace(case), tight, model)["requests"][2]
    assert again["hits"] == (0, 8192, 0)
    load = 42_949_672_960  # [ps]: 8192 * 131 072 byte
    assert again["prefill_end"] - again["prefill_start"] == 96 * MS + load // 64
    assert again["delay"]["h2d"] == load // 64


def test_9_decode_runs_in_the_least_graph_that_holds_the_batch(run: Run) -> None:
    sizes = [1.0, 8.0, 12.0, 16.0]
    model = profile(
        decode={"boundary": "whole", "batch": [1, 8, 12, 16], "base_seconds": [size * 1e-3 for size in sizes],
                "context_token_seconds": [0.0] * 4}
    )  # fmt: skip
    rules = Rules([Group("colocated", 262_144, 524_352)])

    def gap(n: int) -> int:
        found = run(trace([(0.0, 64, 2, ())] * n), rules, model)["requests"]
        return found[0]["finish"] - found[0]["first_token"]

    assert [gap(n) for n in (8, 9, 10, 11, 12, 13)] == [size * MS for size in (8, 12, 12, 12, 12, 16)]


def test_10_copies_are_noticed_when_somebody_waits(run: Run) -> None:
    one = run(trace([(0.0, 128, 1, (1, 2))]), pd(), profile())["trees"][0]
    assert sorted(one.values()) == [(True, True, 1, 0)] * 2  # copied long ago, locked still
    two = run(trace([(0.0, 128, 1, (1, 2)), (9.0, 64, 1, (3,))]), pd(), profile())["trees"][0]
    assert sorted(two.values()) == [(True, True, 0, 0)] * 2 + [(True, True, 1, 0)]


def test_11_writing_back_blocks_the_scheduler(run: Run) -> None:
    # The case speaks of 0 free tokens. A step asks for a page more than it needs, so that one is left here.
    rules = pd(
        {"device_tokens": 313 * 64, "host_tokens": 626 * 64, "chunk_tokens": 19_968, "max_prefill_tokens": 32_768},
        write="write_back",
    )
    case = [(0.0, 19_968, 1, pages(1, 312)), (1.0, 4096, 1, pages(1000, 64))]
    found = run(trace(case), rules, profile())
    assert found["requests"][1]["prefill_start"] == 10**12 + 312 * MS
    assert found["evictions"] == [(312, 0)]
    assert found["bytes"]["d2h"][0] == 312 * 64_000


def test_12_who_has_generated_least_is_retracted_and_nobody_enters_meanwhile(run: Run) -> None:
    # 10 pages at the decode worker, no headroom. B enters when 400 - g <= free - (400 - g), that is beside A.
    rules = pd(decode={"device_tokens": 640, "reserved_decode_tokens": 0})
    case = [(0.0, 64, 400, ()), (0.0, 64, 400, ()), (0.45, 64, 1, ())]
    found = run(trace(case), rules, profile())
    a, b, c = found["requests"]
    assert found["retractions"] == [0, 1]
    assert a["finish"] < b["finish"]
    alone = run(trace(case[:1]), rules, profile())["requests"][0]
    gaps = a["finish"] - a["first_token"]
    # A is never retracted: its steps, and the rounds and copies that came between.
    assert gaps - (alone["finish"] - alone["first_token"]) < 20 * MS
    assert c["delay"]["decode_capacity"] > 0
    assert c["arrival"] + c["delay"]["decode_capacity"] >= a["finish"]


@pytest.mark.parametrize("join", [True, False])
def test_13_the_first_token_waits_for_the_next_loop_of_the_prefill_worker(run: Run, join: bool) -> None:
    # 300 ms for the chunk of 4096 that runs when the handoff of the first request ends.
    model = profile(prefill={"boundary": "whole", "token_seconds": 0.3 / 4096})
    case = [(0.0, 64, 1, ()), (0.001, 4096, 1, ())]
    first, second = run(trace(case), pd(router_join=join, prebuilt=500 * US), model)["requests"]
    step = 4_687_500_000  # [ps] of the 64 tokens
    assert first["prefill_end"] == second["prefill_start"] == step
    decoded = step + 1 * MS + 500 * US
    assert second["prefill_end"] == step + 300 * MS
    assert first["first_token"] == (step + 300 * MS if join else decoded)
    assert first["delay"]["join"] == first["first_token"] - decoded
