"""Rules of engine fidelity on clusters small enough to compute by hand; among them the conformance cases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import kvsweep.cluster
from kvsweep.cluster.engine import loop
from kvsweep.cluster.engine.audit import RULES, broken_rule
from kvsweep.cluster.inputs.config import ClusterConfig, parse_config
from kvsweep.cluster.inputs.service_profile import Profile
from kvsweep.cluster.outcome.dataset import Finished, dataset
from kvsweep.cluster.outcome.events import events, write_events
from kvsweep.cluster.policies.plugins import Plugins
from kvsweep.cluster.setup.initial_state import initial_state
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.simulation.cores import _run
from kvsweep.errors import InputError
from kvsweep.policies import Context, Policy, load_policies
from tests.cluster.samples import COPY, PAGE, STEP, TOKEN, Request, cluster, pages, profile, trace

PREBUILT = 5e-4


def engine(
    prefill: dict[str, Any] | None = None, decode: dict[str, Any] | None = None, **changes: Any
) -> ClusterConfig:
    return cluster(prefill, decode, fidelity="engine", **changes)


def colocated(worker: dict[str, Any] | None = None, **changes: Any) -> ClusterConfig:
    group = {"role": "colocated", "tp": 1, "device_tokens": 262_144, "host_tokens": 524_352, **(worker or {})}
    return parse_config({"page_size": PAGE, "workers": [group], **changes}, "cluster")


def checked(state: State, policy: Policy, ask: Any = None) -> State:
    """Return the state at the end of an uncompiled run, every rule asserted after every instant."""
    return _run(
        state, (policy, Plugins()), lambda run: lambda instants: loop.advance(run, instants, ask), 1,
        lambda run: lambda: broken_rule(run),
    )[0]  # fmt: skip


def run(requests: Sequence[Request], config: ClusterConfig | None = None, service: Profile | None = None) -> xr.Dataset:
    """Run uncompiled, every rule asserted after every instant."""
    made, config = trace(requests), config or engine()
    service = service or profile(n_layers=4)
    policy = load_policies()[config.retrieval.policy]
    state = initial_state(made, config, service, policy)
    ask = PolicyFunctions(lambda *fields: policy.choose(Context(*fields))[0], float, float, float)
    state = checked(state, policy, ask)
    return dataset(Finished(state, made, config, service, policy, Plugins(), 0.0, 0))


def test_a_request_passes_its_stages() -> None:
    ds = run([(0.0, 1000, 4, ())])
    prefilled = 1000 * TOKEN
    handed = prefilled + 16 * COPY
    first = handed + PREBUILT
    assert ds["prefill_end"].values == pytest.approx([prefilled])
    assert ds["handoff_end"].values == pytest.approx([handed])
    assert ds["first_token"].values == pytest.approx([first])
    assert ds["finish"].values == pytest.approx([first + 3 * STEP])
    assert ds.attrs["kvsweep_fidelity"] == "engine" and "SGLang" in ds.attrs["comment"]


@pytest.mark.parametrize(("prompt", "hit"), [(128, 64), (129, 128), (64, 0)])
def test_a_cached_prompt_computes_at_least_one_token(prompt: int, hit: int) -> None:
    requests = [(float(i), prompt, 1, pages(0, prompt // PAGE)) for i in range(2)]
    ds = run(requests)
    assert ds["hit_tokens"].values[1].tolist() == [hit, 0, 0]
    assert ds["bytes_out"].sel(worker="prefill0", tier="l1") > 0
    # What is cached is handed off all the same.
    sent = ds["handoff_end"].values - ds["prefill_end"].values
    assert sent[0] == pytest.approx(sent[1])


def test_requests_share_the_budget_of_a_step() -> None:
    ds = run([(0.0, 1000, 1, ()), (0.0, 2000, 1, ()), (0.0, 5000, 1, ())])
    ends = ds["prefill_end"].values
    # 4096 − 1024 − 2048 = 1024 of the third; the other 3976 alone in the second step.
    assert ends == pytest.approx([4024 * TOKEN, 4024 * TOKEN, 8000 * TOKEN])


@pytest.mark.parametrize(("schedule", "hits"), [("fcfs", [0, 0, 0]), ("lpm", [0, 960, 0])])
def test_equal_prompts_that_wait_together(schedule: str, hits: list[int]) -> None:
    # Put off behind the third, the second finds no room in the first step, and the first's pages in the next.
    requests = [(0.0, 1000, 1, pages(0, 15)), (0.0, 1000, 1, pages(0, 15)), (0.0, 4000, 1, ())]
    ds = run(requests, engine(engine={"schedule": schedule}))
    assert ds["hit_tokens"].sel(tier="l1").values.tolist() == hits


def test_a_prompt_finds_the_chunks_before_that_of_its_own_step() -> None:
    ids = pages(0, 156)
    ds = run([(0.0, 10_000, 1, ids), (0.005, 10_000, 1, ids)])
    assert ds["hit_tokens"].sel(tier="l1").values.tolist() == [0, 8192]
    # Both have 1808 tokens in the step of the third chunk.
    assert ds["prefill_end"].values[0] == ds["prefill_end"].values[1] == pytest.approx((8192 + 2 * 1808) * TOKEN)


def test_a_warm_prompt_of_three_chunks_computes_less_than_a_page() -> None:
    ids = pages(0, 156)
    ds = run([(0.0, 10_000, 1, ids), (1.0, 10_000, 1, ids)])
    assert ds["uncached_tokens"].values[1] == 10_000 - 156 * PAGE


@pytest.mark.parametrize(("prompt", "output", "fits"), [(500, 500, False), (448, 128, True)])
def test_a_decode_worker_reserves_by_headroom(prompt: int, output: int, fits: bool) -> None:
    config = engine(decode={"device_tokens": 1000})
    ds = run([(0.0, prompt, output, ())], config)
    assert bool(ds["rejected"].values[0]) is not fits


def test_loading_overlaps_layer_by_layer() -> None:
    config = engine(prefill={"device_tokens": 10 * PAGE + PAGE})
    ids = pages(0, 8)
    ds = run([(0.0, 513, 1, ids), (1.0, 640, 1, pages(100, 10)), (2.0, 513, 1, ids)], config)
    assert ds["hit_tokens"].values[2].tolist() == [0, 512, 0]
    # The load of 8 pages takes longer than the token: H + T / layers.
    assert ds["prefill_end"].values[2] == pytest.approx(2.0 + 8 * COPY + TOKEN / 4)
    assert ds["queue_delay"].sel(cause="h2d").values[2] == pytest.approx(8 * COPY + TOKEN / 4 - TOKEN)


def test_an_idle_worker_does_not_notice_that_its_copies_ended() -> None:
    policy = load_policies()["default_policy"]
    state = initial_state(trace([(0.0, 641, 1, pages(0, 10))]), engine(), profile(n_layers=4), policy)
    checked(state, policy)
    assert state.prefill[0, col.IDLE] == 0  # locked still, though the copy ended long ago
    ds = run([(0.0, 641, 1, pages(0, 10)), (1.0, 641, 1, pages(0, 10))])
    assert ds["bytes_in"].sel(worker="prefill0", tier="l2") == 10 * PAGE * 1000


def test_write_back_stalls_for_the_whole_victim() -> None:
    config = engine(
        prefill={"device_tokens": 313 * PAGE, "host_tokens": 2000 * PAGE, "chunk_tokens": 313 * PAGE},
        engine={"max_prefill_tokens": 100_000}, write={"policy": "write_back"},
    )  # fmt: skip
    requests = [(0.0, 312 * PAGE, 1, pages(0, 312)), (10.0, 4000, 1, ())]
    ds = run(requests, config)
    assert ds["evictions"].sel(worker="prefill0", tier="l1") == 312
    assert ds["prefill_start"].values[1] == pytest.approx(10.0 + 312 * COPY)


def test_the_first_token_waits_for_the_answer_of_the_prefill_worker() -> None:
    requests = [(0.0, 64, 3, ()), (0.00006, 4000, 1, ())]
    joined, alone = (run(requests, engine(engine={"router_join": join})) for join in (True, False))
    # The worker computes the second prompt while the first is handed off, and answers at the end of that step.
    assert alone["first_token"].values[0] == pytest.approx(64 * TOKEN + COPY + PREBUILT)
    assert joined["first_token"].values[0] == pytest.approx(4064 * TOKEN)
    assert joined["queue_delay"].sel(cause="join").values[0] == pytest.approx(4000 * TOKEN - COPY - PREBUILT)
    assert alone["queue_delay"].sel(cause="join").values[0] == 0.0


def test_a_decode_worker_retracts_and_goes_on() -> None:
    config = engine(decode={"device_tokens": 8 * PAGE}, engine={"reserved_decode_tokens": 0})
    ds = run([(0.0, 64, 300, ()), (0.0, 100, 300, ())], config)
    assert np.isfinite(ds["finish"].values).all()
    assert ds["occupancy"].sel(worker="decode0", tier="l1") <= 8 * PAGE


def test_a_colocated_worker_prefills_before_it_decodes() -> None:
    ds = run([(0.0, 1000, 5, ()), (0.0021, 2000, 1, ())], colocated())
    assert ds["first_token"].values[0] == pytest.approx(1000 * TOKEN)
    # Two steps and a third end at 4 ms, the second prompt takes 2 ms, then the last two tokens.
    assert ds["prefill_start"].values[1] == pytest.approx(1000 * TOKEN + 2 * STEP)
    assert ds["first_token"].values[1] == pytest.approx(3000 * TOKEN + 2 * STEP)
    assert ds["finish"].values[0] == pytest.approx(3000 * TOKEN + 4 * STEP)
    assert ds["worker_role"].values.tolist() == ["colocated"]


def test_what_the_answer_added_is_in_the_tree_of_a_colocated_worker_retracted_or_not() -> None:
    config = colocated({"device_tokens": 10 * PAGE, "host_tokens": 0})
    ds = run([(0.0, 64, 200, ()), (0.0, 100, 200, ()), (0.0, 100, 200, ())], config)
    assert np.isfinite(ds["finish"].values).all()


def test_what_others_wrote_is_fetched_from_l3() -> None:
    l3 = {"pool_tokens": 1_000_000, "stop_policy": "wait_complete"}
    path = {"boundary": "b", "bytes_per_s": 64e6}
    service = profile(n_layers=4, l3_read=path, l3_write=path, l3_query_seconds=1e-3)
    ids = pages(0, 10)
    requests = [(0.0, 641, 1, ids), (1.0, 64, 1, ()), (2.0, 64, 1, ()), (5.0, 641, 1, ids)]
    config = engine(prefill={"count": 2}, gateway={"policy": "round_robin"}, l3=l3)
    ds = run(requests, config, service)
    assert ds["prefill_worker"].values.tolist() == [0, 1, 0, 1]
    # The third request is the first at whose round worker 0 notices its copy and writes on.
    assert ds["hit_tokens"].values[3].tolist() == [0, 0, 640]
    assert ds["prefill_start"].values[3] == pytest.approx(5.0 + 1e-3 + 10 * COPY)
    assert ds["bytes_out"].sel(tier="l3").values.sum() == 640 * 1000
    early = run(requests, engine(prefill={"count": 2}, l3={**l3, "stop_policy": "best_effort"}), service)
    assert early["hit_tokens"].values[3].tolist() == [0, 0, 0]


def test_the_events_of_a_colocated_worker_are_its_own(tmp_path: Path) -> None:
    made, config, service = trace([(0.0, 1000, 3, ())]), colocated(), profile(n_layers=4)
    policy = load_policies()["default_policy"]
    state = initial_state(made, config, service, policy)
    state = checked(state, policy)
    finished = Finished(state, made, config, service, policy, Plugins(), 0.0, 0)
    assert set(events(finished)["event_worker"].values.tolist()) == {0}
    write_events(finished, tmp_path / "events.json")
    spans = [row for row in json.loads((tmp_path / "events.json").read_text())["traceEvents"] if row["ph"] == "X"]
    assert {row["name"] for row in spans} == {"prefill", "decode"} and all(row["ts"] >= 0 for row in spans)


def test_extensions_are_named() -> None:
    config = engine(eviction={"policy": "gdsf"}, retention={"policy": "idle_ttl"})
    assert "eviction: gdsf" in run([(0.0, 64, 1, ())], config).attrs["kvsweep_extensions"]


def test_what_the_engine_needs_is_asked_for() -> None:
    with pytest.raises(InputError, match="n_layers: missing"):
        kvsweep.cluster.run(trace([(0.0, 64, 1, ())]), engine(), profile(n_layers=None))
    with pytest.raises(InputError, match="profile: l3_read: missing"):
        run([(0.0, 64, 1, ())], engine(l3={"pool_tokens": 1000}))
    with pytest.raises(InputError, match="l3: with write policy none"):
        engine(l3={"pool_tokens": 1000}, write={"policy": "none"})


def test_rules_have_texts() -> None:
    assert all(RULES[1:])
