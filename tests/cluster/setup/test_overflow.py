"""Bounds of the clock: what fits runs, exactly; what is let through overflows nowhere, at the ends of every field."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvsweep.cluster
from kvsweep.catalog import load
from kvsweep.cluster.inputs.config import ClusterConfig, parse_config
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.cluster.inputs.service_profile import Profile, parse_profile
from kvsweep.cluster.paper import transfer
from kvsweep.cluster.policies.prefetch.timeout import waits_until
from kvsweep.cluster.setup.initial_state import initial_state
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import scaled
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.simulation.cores import compiled_run, plain_run
from kvsweep.errors import InputError
from kvsweep.policies import load_policies
from kvsweep.trace.model import Trace
from tests.cluster.samples import PAGE, cluster, path, profile, trace

POLICY = load_policies()["default_policy"]
INT64 = st.integers(-(2**63) + 1, 2**63 - 1)


@given(INT64, st.integers(0, 2**32), st.integers(1, 2**30))
def test_scaled_is_the_quotient_of_the_product(value: int, factor: int, divisor: int) -> None:
    assert scaled(value, factor, divisor) == value * factor // divisor
    assert -scaled(-value, factor, divisor) == -(-value * factor // divisor)


@given(st.integers(0, col.NEVER), st.integers(0, 10**18), st.integers(0, 10**18), st.integers(1, 10**9))
def test_timeouts_are_exact_up_to_the_end_of_the_clock(began: int, base: int, per: int, tokens: int) -> None:
    """With a clock of the width it has: numpy would warn of an overflow, which fails the test."""
    since, wanted, per_ki = np.array([began + base, tokens, per])
    with np.errstate(over="raise"):
        assert waits_until(since, wanted, per_ki) == min(col.NEVER, began + base + per * tokens // 1024)


def with_l3(**l3: Any) -> ClusterConfig:
    return cluster(fidelity="engine", l3={"pool_tokens": 10**7, "stop_policy": "timeout", **l3})


@pytest.mark.parametrize("per", [10.0, 1e6])
def test_long_timeouts_of_long_prompts_run_as_if_all_were_awaited(per: float) -> None:
    made = trace([(0.0, 132_000, 2, range(2000)), (1e3, 132_001, 2, range(2000))])
    service = profile(l3_read=path(), l3_write=path())
    timed = kvsweep.cluster.run(made, with_l3(timeout_per_1024_tokens_seconds=per), service)
    awaited = kvsweep.cluster.run(made, with_l3(stop_policy="wait_complete"), service)
    assert timed.equals(awaited) and not timed["rejected"].any()


def test_a_long_prompt_over_a_slow_link(fidelity: str) -> None:
    service = roofline(load(), "qwen3-8b", "h100-sxm", 2, "tcp-25g")
    pools = {"tp": 2, "device_tokens": 262_144, "chunk_tokens": 65_536}
    rules = {"engine": {"max_prefill_tokens": 65_536}} if fidelity == "engine" else {}
    config = cluster(pools, {"tp": 2}, fidelity=fidelity, context={"beyond": "serve"}, **rules)
    ds = kvsweep.cluster.run(trace([(0.0, 52_000, 2, ())]), config, service)
    payload = -(-52_000 // PAGE) * PAGE * service.kv_bytes_per_token
    alone = service.handoff.setup_seconds + payload / service.handoff.bytes_per_s
    assert ds["handoff_end"].values - ds["prefill_end"].values == pytest.approx([alone])


def magnitude(rng: random.Random, low: float, high: float) -> float:
    """Return a number of any size, more often than not at an end of what is allowed."""
    kind = rng.random()
    return low if kind < 0.2 else high if kind < 0.4 else float(low * (high / low) ** rng.random())


def extreme_profile(rng: random.Random) -> Profile:
    """Return a profile whose figures lie anywhere in their ranges."""

    def copies() -> dict[str, Any]:
        return {"boundary": "b", "setup_seconds": magnitude(rng, 1e-9, 100.0), "bytes_per_s": magnitude(rng, 1e6, 1e15)}

    sizes = [1, 2, rng.choice((3, 4096))]
    return parse_profile(
        {
            "name": "extreme", "tp": 1, "n_layers": rng.choice((1, 64, 10_000)),
            "kv_bytes_per_token": magnitude(rng, 1.0, 1e9),
            "prefill": {"boundary": "b", "token_seconds": magnitude(rng, 1e-9, 1.0),
                        "token_pair_seconds": magnitude(rng, 1e-15, 1.0)},
            "decode": {"boundary": "b", "batch": sizes,
                       "base_seconds": sorted(magnitude(rng, 1e-6, 100.0) for _ in sizes),
                       "context_token_seconds": sorted(magnitude(rng, 1e-12, 1.0) for _ in sizes)},
            "handoff": copies(), "h2d": copies(), "d2h": copies(), "l3_read": copies(), "l3_write": copies(),
            "l3_query_seconds": magnitude(rng, 1e-9, 100.0),
        },
        "profile",
    )  # fmt: skip


def extreme_config(rng: random.Random, fidelity: str, page: int) -> ClusterConfig:
    pages = rng.choice((4, 12, 10**9 // page))
    worker = {"tp": 1, "device_tokens": page * pages, "max_running": rng.choice((1, 3, 32))}
    chunk = page * rng.choice((1, 4, max(1, 10**9 // page)))
    prefill = {**worker, "host_tokens": page * rng.choice((0, 9, 10**9 // page)), "chunk_tokens": chunk}
    values: dict[str, Any] = {
        "fidelity": fidelity, "page_size": page,
        "workers": [{"role": "prefill", "count": 3, **prefill}, {"role": "decode", "count": 2, **worker}],
        "handoff_sharing": rng.choice(("processor_sharing", "fifo", "none")),
        "retention": {"policy": rng.choice(("none", "idle_ttl")), "seconds": magnitude(rng, 1e-6, 1e6),
                      "check_seconds": magnitude(rng, 1e-3, 1e6)},
        "eviction": {"policy": rng.choice(("lru", "gdsf"))}, "window_seconds": 1e6,
        "write": {"policy": "write_through"},
    }  # fmt: skip
    if fidelity == "engine":
        values["engine"] = {"reserved_decode_tokens": 0, "load_back_threshold_tokens": 0}
        if rng.random() < 0.5:
            values["workers"] = [{"role": "colocated", "count": 2, **prefill}]
        if rng.random() < 0.5:
            times = {f"timeout_{of}_seconds": magnitude(rng, 1e-6, 1e6) for of in ("base", "per_1024_tokens")}
            values["l3"] = {"pool_tokens": 10**9, "stop_policy": "timeout", "batch_pages": rng.choice((1, 128)),
                            "prefetch_threshold_tokens": 1, **times}  # fmt: skip
        else:
            values["write"] = {"policy": rng.choice(("write_back", "write_through_selective"))}
    return parse_config(values, "extreme")


def extreme_case(seed: int, fidelity: str) -> tuple[Trace, ClusterConfig, Profile]:
    rng = random.Random(seed)
    page = rng.choice((1, 64, 65_536))
    requests, time = [], 0.0
    for _ in range(rng.randint(2, 8)):
        time += rng.choice((0.0, magnitude(rng, 1e-6, 4e5)))
        n_pages = rng.randint(1, 8)
        first = rng.choice((0, 100, 200))
        requests.append(
            (
                time,
                n_pages * page + rng.randint(1, page),
                rng.choice((1, 3, 200, 200, 20_000)),
                range(first, first + n_pages),
            )
        )
    return trace(requests, page=page), extreme_config(rng, fidelity, page), extreme_profile(rng)


def test_what_is_let_through_overflows_nowhere(fidelity: str) -> None:
    """The plain source counts with 64 bits of numpy, which tells of every overflow of theirs."""
    n_refused = n_done = 0
    for seed in range(400):
        case = extreme_case(seed, fidelity)
        try:
            begin = [initial_state(*case, POLICY) for _ in range(2)]
        except InputError as error:
            assert "the clock cannot hold" in str(error) or "goes on to" in str(error)
            n_refused += 1
            continue
        with np.errstate(over="raise"):
            plain = plain_run(begin[0], POLICY)
        for name, one, other in zip(State._fields, plain, compiled_run(begin[1], POLICY), strict=True):
            assert np.array_equal(one, other), (seed, name)
        n_done += 1
    assert n_refused > 100 and n_done > 100


def test_virtual_time_that_begins_anew_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A way that is never idle for hours would outgrow 64 bits in 256ths of a picosecond."""
    rng = random.Random(1)
    requests = [(rng.random(), rng.randint(1, 2000), 2, ()) for _ in range(80)]
    for sharing in ("processor_sharing", "fifo", "none"):
        config = cluster({"count": 4}, {"count": 2}, gateway={"policy": "random"}, handoff_sharing=sharing)
        begin = [initial_state(trace(requests), config, profile(), POLICY) for _ in range(2)]
        compiled_run(begin[0], POLICY)
        with monkeypatch.context() as patch:
            patch.setattr(transfer, "LATE", 1000)
            plain_run(begin[1], POLICY)
        assert np.array_equal(begin[0].request, begin[1].request)
        assert np.array_equal(begin[0].decode[:, col.CHUNKS], begin[1].decode[:, col.CHUNKS])


def test_a_way_that_is_busy_for_days() -> None:
    """Two sources send for 700 s a prompt: in 256ths of a picosecond, 64 bits are over after ten hours."""
    service = profile(handoff=path(bytes_per_s=1e6, setup_seconds=100.0), kv_bytes_per_token=1e5)
    requests = [(50.0 * i, 64 * 78, 1, ()) for i in range(300)]
    ds = kvsweep.cluster.run(
        trace(requests), cluster({"count": 2}, gateway={"policy": "round_robin"}), service, check=True
    )
    alone = 2 * 100.0 + 78 * 64 * 1e5 / 1e6  # in two chunks
    assert np.isfinite(ds["finish"].values).all() and (np.diff(np.sort(ds["handoff_end"].values)) > 0).all()
    assert float(ds["handoff_end"].max()) == pytest.approx(300 * alone, rel=0.01)
