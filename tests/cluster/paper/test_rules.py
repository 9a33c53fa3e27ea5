"""The rules of paper fidelity on cases that can be computed by hand (kvsweep/cluster/paper/README.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import kvsweep
from kvsweep.cluster.inputs.config import ClusterConfig
from kvsweep.cluster.inputs.service_profile import Profile, decode_coefficients
from kvsweep.cluster.setup.initial_state import initial_state
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.simulation.cores import plain_run
from kvsweep.errors import InputError, PolicyError, ResultError
from kvsweep.policies import load_policies
from tests.cluster.samples import COPY, PAGE, STEP, TOKEN, cluster, pages, path, profile, trace


def run(
    requests: list[Any], config: ClusterConfig | None = None, service: Profile | None = None, **options: Any
) -> xr.Dataset:
    return kvsweep.cluster.run(trace(requests), config or cluster(), service or profile(), check=True, **options)


def values(ds: xr.Dataset, name: str) -> list[float]:
    return pytest.approx(ds[name].values.tolist(), abs=2e-11)  # type: ignore[return-value]


@pytest.mark.parametrize(("n_tokens", "hit"), [(128, 64), (129, 128), (64, 0), (63, 0), (1, 0)])
def test_a_repeated_prompt_computes_at_least_one_token(n_tokens: int, hit: int) -> None:
    ids = pages(0, n_tokens // PAGE)
    ds = run([(0.0, n_tokens, 1, ids), (10.0, n_tokens, 1, ids)])
    assert ds["hit_tokens"].values[1].tolist() == [hit, 0, 0]
    assert ds["uncached_tokens"].values.tolist() == [n_tokens, n_tokens - hit]


def test_a_step_is_shared_and_its_last_request_goes_on_first() -> None:
    ds = run([(0.0, n, 1, ()) for n in (1000, 2000, 5000, 100)])
    first = (1000 + 2000 + 1024) * TOKEN
    second = first + (3976 + 64) * TOKEN
    assert values(ds, "prefill_start") == [0.0, 0.0, 0.0, first]
    assert values(ds, "prefill_end") == [first, first, second, second + 36 * TOKEN]


def test_a_prompt_that_fills_the_pool_can_be_asked_again() -> None:
    ds = run([(0.0, 640, 1, pages(0, 10)), (10.0, 640, 1, pages(0, 10))], cluster(prefill={"device_tokens": 640}))
    assert ds["hit_tokens"].values[1].tolist() == [576, 0, 0]
    assert ds["evictions"].sum() == 0


def test_equal_prompts_of_one_step_do_not_share() -> None:
    ds = run([(0.0, 1000, 1, pages(0, 15)), (0.0, 1000, 1, pages(0, 15))])
    assert ds["uncached_tokens"].values.tolist() == [1000, 1000]
    assert values(ds, "prefill_end") == [2000 * TOKEN] * 2


def test_chunks_can_be_matched_as_soon_as_they_are_computed() -> None:
    ids = pages(0, 156)
    ds = run([(0.0, 10_000, 1, ids), (0.005, 10_000, 1, ids)])
    assert ds["hit_tokens"].values[1].tolist() == [8192, 0, 0]
    assert values(ds, "prefill_start") == [0.0, 8192 * TOKEN]
    assert values(ds, "prefill_end") == [(8192 + 2 * 1808) * TOKEN] * 2


def test_the_whole_prompt_is_handed_off_cached_or_not() -> None:
    ds = run([(0.0, 128, 1, pages(0, 2)), (10.0, 128, 1, pages(0, 2))])
    assert ds["bytes_in"].sel(worker="decode0", tier="l1") == 2 * 2 * 64_000
    assert values(ds, "handoff_end") == [128 * TOKEN + 2 * COPY, 10 + 64 * TOKEN + 2 * COPY]


def test_chunks_are_handed_off_while_the_next_is_computed() -> None:
    service = profile(handoff=path(bytes_per_s=64e6 * 64))  # a chunk of 64 pages takes 1 ms
    ds = run([(0.0, 8192, 1, ())], service=service)
    assert values(ds, "handoff_end") == [8192 * TOKEN + COPY]


def test_tokens_come_step_by_step_after_the_handoff() -> None:
    ds = run([(0.0, 64, 5, ())])
    handed = 64 * TOKEN + COPY
    assert values(ds, "first_token") == [handed + STEP]
    assert values(ds, "finish") == [handed + 5 * STEP]
    assert values(ds, "tpot") == [STEP]
    assert np.isnan(run([(0.0, 64, 1, ())])["tpot"].values[0])


def test_requests_join_the_batch_at_step_boundaries() -> None:
    handed = 64 * TOKEN + COPY
    ds = run([(0.0, 64, 10, ()), (2.5 * STEP, 64, 2, ())])
    assert values(ds, "first_token") == [handed + STEP, handed + 4 * STEP]
    assert values(ds, "finish") == [handed + 10 * STEP, handed + 5 * STEP]
    assert ds["queue_delay"].sel(cause="decode").values[1] == pytest.approx(STEP / 2)


def test_a_batch_takes_the_time_of_its_graph_bucket() -> None:
    service = profile(decode={
        "boundary": "whole", "batch": [1, 51], "base_seconds": [1.0, 51.0], "context_token_seconds": [0.0, 0.0]
    })  # fmt: skip
    base = decode_coefficients(service, (1, 2, 4, 8, 12, 16), 20)[:, 0] / 1e15
    assert base[9:13].tolist() == [12.0] * 4
    assert base[13:17].tolist() == [16.0] * 4
    assert base[17:].tolist() == [17.0, 18.0, 19.0, 20.0]


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_equal_transfers_into_one_destination_take_k_times_as_long(k: int) -> None:
    config = cluster(prefill={"count": k})
    ds = run([(0.0, 640, 1, ())] * k, config)
    assert values(ds, "handoff_end") == [640 * TOKEN + k * 10 * COPY] * k
    alone = cluster(prefill={"count": k}, handoff_sharing="none")
    assert values(run([(0.0, 640, 1, ())] * k, alone), "handoff_end") == [640 * TOKEN + 10 * COPY] * k


def test_chunks_in_turn_wait_at_the_destination_and_keep_their_source() -> None:
    # 10 ms each: those of one instant by their source; the fourth starts when the first source is free again.
    config = cluster(prefill={"count": 3, "chunk_tokens": 640}, handoff_sharing="fifo")
    ds = run([(0.0, 640, 1, ())] * 4, config)
    began = 640 * TOKEN
    assert values(ds, "handoff_end") == [began + k * 10 * COPY for k in (1, 2, 3, 4)]
    waits = ds["queue_delay"].sel(cause="handoff").values
    # The fourth prompt is computed right after the first one, and waits for its turn from then on.
    expected = [0.0, 10 * COPY, 20 * COPY, 30 * COPY - 640 * TOKEN]
    assert waits == pytest.approx(expected, abs=2e-11)


def test_a_chunk_in_turn_that_finds_nobody_begins_at_once() -> None:
    config = cluster(prefill={"count": 2}, handoff_sharing="fifo")
    ds = run([(0.0, 640, 1, ()), (0.004, 64, 1, ()), (1.0, 64, 1, ())], config)
    first = 640 * TOKEN + 10 * COPY
    assert values(ds, "handoff_end") == [first, first + COPY, 1.0 + 64 * TOKEN + COPY]


def test_sharing_is_timed_anew_at_every_start_and_end() -> None:
    # A alone for 4 ms of its 10, both at half rate until A has sent the rest (12 ms), then B alone with 4 left.
    ds = run([(0.0, 640, 1, ()), (0.004, 640, 1, ())], cluster(prefill={"count": 2}))
    began = 640 * TOKEN
    expected = [began + 0.004 + 2 * 0.006, began + 0.004 + 2 * 0.006 + 0.004]
    assert ds["handoff_end"].values == pytest.approx(expected, abs=1e-9)


def test_what_the_device_dropped_is_retrieved_from_the_host_before_computing() -> None:
    config = cluster(prefill={"device_tokens": 640})
    ids = pages(0, 8)
    ds = run([(0.0, 513, 1, ids), (1.0, 640, 1, pages(100, 10)), (2.0, 513, 1, ids)], config)
    assert ds["hit_tokens"].values[2].tolist() == [0, 512, 0]
    assert ds["prefill_start"].values[2] == pytest.approx(2.0 + 8 * COPY)
    assert ds["evictions"].sel(worker="prefill0", tier="l1") == 8 + 9
    without = run([(0.0, 513, 1, ids), (1.0, 640, 1, pages(100, 10)), (2.0, 513, 1, ids)],
                  cluster(prefill={"device_tokens": 640, "host_tokens": 0}))  # fmt: skip
    assert without["hit_tokens"].values.sum() == 0
    assert without["bytes_in"].sel(tier="l2").values.sum() == 0


def test_idle_pages_go_at_the_first_check_after_their_time() -> None:
    config = cluster(retention={"policy": "idle_ttl", "seconds": 1.0, "check_seconds": 0.5}, write={"policy": "none"})
    ids = pages(0, 10)
    released = 641 * TOKEN + 11 * COPY
    # Idle since 0.0116 s, so older than 1 s at 1.0116 s, gone at 1.5 s.
    ds = run([(0.0, 641, 1, ids), (1.499, 641, 1, ids)], config)
    assert ds["hit_tokens"].values[1, 0] == 640
    ds = run([(0.0, 641, 1, ids), (1.5, 641, 1, ids)], config)
    assert ds["hit_tokens"].values[1, 0] == 0
    ds = run([(0.0, 641, 1, ids), (4.0, 64, 1, ())], config)
    occupancy = (640 * 1.5 + 64 * released) / 4.0
    assert ds["occupancy"].sel(worker="prefill0", tier="l1") == pytest.approx(occupancy)


def test_a_recomputed_front_and_a_recomputed_tail_need_the_same_tokens(tmp_path: Any) -> None:
    requests = [(0.0, 513, 1, pages(0, 8)), (1.0, 640, 1, pages(100, 10)), (2.0, 513, 1, pages(0, 8))]
    for side in ("front", "tail", "any"):
        file = tmp_path / f"half_{side}.py"
        file.write_text(
            f'name, label, description, color = "half_{side}", "Half", "Half of the hits.", "#123456"\n'
            f'order, recomputes, modes = 1, "{side}", ("half",)\n'
            "def decide(ctx):\n    return ctx.hit_blocks * 0.4, 'half'\n"
        )
        config = cluster(prefill={"device_tokens": 640}, retrieval={"policy": f"half_{side}"}, slo={"ttft_seconds": 1})
        ds = run(requests, config, policy_files=[file])
        # 0.4 of 8 pages are 3.2: 3 are recomputed, 5 retrieved.
        assert ds["hit_tokens"].values[2].tolist() == [0, 5 * PAGE, 0]
        assert ds["prefill_start"].values[2] == pytest.approx(2.0 + 5 * COPY)
        assert ds["prefill_end"].values[2] == pytest.approx(2.0 + 5 * COPY + (3 * PAGE + 1) * TOKEN)


def test_fixed_policies_and_asked_ones() -> None:
    requests = [(0.0, 513, 1, pages(0, 8)), (1.0, 640, 1, pages(100, 10)), (2.0, 513, 1, pages(0, 8))]
    small = {"prefill": {"device_tokens": 640}}
    assert run(requests, cluster(**small, retrieval={"policy": "all_compute"}))["hit_tokens"].values[2, 1] == 0
    with pytest.raises(InputError, match="slo: ttft_seconds: missing; retrieval policy performance_aware"):
        run(requests, cluster(**small, retrieval={"policy": "performance_aware"}))
    asked = cluster(**small, retrieval={"policy": "performance_aware"}, slo={"ttft_seconds": 1.0})
    # A page takes 1 ms to retrieve and 64 us to compute: 9 · 15.6/16.6 − 1 = 7.4 of 8 hit pages are recomputed.
    assert run(requests, asked)["hit_tokens"].values[2, 1] == 1 * PAGE


def test_a_policy_that_returns_nonsense_is_named(tmp_path: Any) -> None:
    file = tmp_path / "odd.py"
    file.write_text(
        'name, label, description, color, order = "odd", "Odd", "Odd.", "#123456", 1\n'
        'recomputes, modes = "any", ("m",)\n'
        "def decide(ctx):\n    return ctx.hit_blocks * float('nan'), 'm'\n"
    )
    requests = [(0.0, 513, 1, pages(0, 8)), (1.0, 640, 1, pages(100, 10)), (2.0, 513, 1, pages(0, 8))]
    config = cluster(prefill={"device_tokens": 640}, retrieval={"policy": "odd"}, slo={"ttft_seconds": 1.0})
    with pytest.raises(PolicyError, match="policy odd .*request 2 at 2.000000 s: decide returned NaN"):
        run(requests, config, policy_files=[file])


def test_a_policy_file_that_cannot_be_used_is_the_reason(tmp_path: Any) -> None:
    file = tmp_path / "odd.py"
    file.write_text("name = 'odd'\n")
    with pytest.raises(PolicyError, match="no 'odd': policy file .*odd.py: left out: label is missing"):
        run([(0.0, 100, 1, ())], cluster(retrieval={"policy": "odd"}), policy_files=[file])


def test_a_request_too_large_for_every_pool_is_rejected_and_the_others_run() -> None:
    config = cluster(prefill={"device_tokens": 640}, decode={"device_tokens": 1280})
    ds = run([(0.0, 641, 1, ()), (0.0, 640, 1, ()), (0.0, 100, 1200, ()), (1.0, 100, 2, ())], config)
    assert ds["rejected"].values.tolist() == [1, 0, 1, 0]
    assert np.isnan(ds["ttft"].values).tolist() == [True, False, True, False]
    assert ds["prefill_worker"].values.tolist() == [-1, 0, -1, 0]
    assert ds["uncached_tokens"].values.tolist() == [0, 640, 0, 100]


def test_a_run_without_progress_is_told() -> None:
    policy = load_policies()["default_policy"]
    state = initial_state(trace([(0.0, 100, 1, ())]), cluster(), profile(), policy)
    state.prefill[0, col.FREE] = 1
    with pytest.raises(ResultError, match=r"no progress: .*request 0 \(prefill worker 0, .*waits for its admission"):
        plain_run(state, policy)


@pytest.mark.parametrize(("policy", "workers"), [
    ("round_robin", [0, 1, 2, 0, 1, 2]),
    ("session_affinity", [0, 1, 0, 2, 0, 1]),
    ("least_loaded", [0, 1, 2, 0, 1, 2]),
])  # fmt: skip
def test_gateways_choose_workers(policy: str, workers: list[int]) -> None:
    requests = [(0.0, 100, 1, ()) for _ in range(6)]
    made = trace(requests, sessions=[0, 1, 0, 2, 0, 1])
    ds = kvsweep.cluster.run(made, cluster(prefill={"count": 3}, gateway={"policy": policy}), profile(), check=True)
    assert ds["prefill_worker"].values.tolist() == workers


def test_a_cache_aware_gateway_follows_the_prefix_until_loads_differ() -> None:
    requests = [(float(i), 1000, 1, pages(100 * (i % 2), 15)) for i in range(6)]
    config = cluster(prefill={"count": 2}, gateway={"policy": "cache_aware"})
    ds = run(requests, config)
    assert ds["uncached_tokens"].values.tolist() == [1000, 1000] + [40] * 4
    burst = [(0.0, 1000, 1, pages(0, 15))] + [(1.0, 1000, 1, pages(0, 15))] * 8
    config = cluster(prefill={"count": 2}, gateway={"policy": "cache_aware", "balance_requests": 2})
    found = np.bincount(run(burst, config)["prefill_worker"].values[1:])
    assert found.min() >= 2


@pytest.mark.parametrize(
    ("policy", "asked", "kept"),
    [
        ("lru", "aaabc", "b"),
        ("lru", "abac", "a"),
        ("fifo", "abac", "b"),
        ("lfu", "aaabc", "a"),
        ("lfu", "abbac", "a"),
        ("gdsf", "aaabc", "a"),
        ("belady", "aabcb", "b"),
        ("tlru", "abac", "a"),
    ],
)
def test_eviction_policies_choose_their_victim(policy: str, asked: str, kept: str) -> None:
    """Room for two of the three prompts: the third costs one of the others three pages."""
    prompts = {"a": pages(0, 4), "b": pages(10, 4), "c": pages(20, 4)}
    requests = [(float(i), 257, 1, prompts[name]) for i, name in enumerate(asked + kept)]
    config = cluster(prefill={"device_tokens": 10 * PAGE, "host_tokens": 0}, eviction={"policy": policy})
    ds = run(requests, config)
    assert ds["evictions"].sel(worker="prefill0", tier="l1") >= 3
    assert ds["hit_tokens"].values[-1, 0] == 256
