"""The cluster simulator against its slow twin: equal per request, and per worker, on fuzzed small clusters.

``CLUSTER_SOAK=5000 pytest tests/cluster/paper/test_twin.py`` compares 5000 clusters more than the quick run.
"""

from __future__ import annotations

import math
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvsweep.cluster
from kvsweep.cluster.inputs.config import SHARINGS, ClusterConfig, parse_config
from kvsweep.cluster.inputs.service_profile import Profile, parse_profile
from kvsweep.cluster.policies.eviction import POLICIES as EVICTIONS
from kvsweep.cluster.policies.gateway import POLICIES as GATEWAYS
from kvsweep.cluster.setup.initial_state import initial_state
from kvsweep.cluster.simulation.cores import plain_run
from kvsweep.policies import load_policies
from kvsweep.trace.model import Trace
from tests.cluster.paper import naive as naive_cluster
from tests.cluster.samples import cluster, fuzz_profile, path, trace

QUICK, BATCH = 300, 50
SOAK = int(os.environ.get("CLUSTER_SOAK", "0"))

FRONT_POLICY = '''"""Recompute half of the front: of the policies that ship none recomputes the front."""

name = "half_of_the_front"
label = "Half of the front"
description = "Recompute the front half of the hits."
color = "#123456"
order = 99
recomputes = "front"
modes = ("half",)


def decide(ctx):
    return ctx.hit_blocks * 0.5, "half"
'''
GATEWAY_FILE = '''"""Reads all there is, on a grid coarse enough for many ties."""

kind, name = "gateway", "coarse"


def coarse(number, step):
    return (number + step / 2) // step


def cost(ctx):
    held = ctx.device_pages + 0.5 * ctx.host_pages + 0.25 * ctx.l3_pages
    busy = ctx.load_requests + coarse(ctx.load_pages + ctx.prefill_pages, 4.0) + ctx.pool_pages / 64.0
    mood = coarse(ctx.draw + ctx.session + ctx.seconds + ctx.prompt_tokens / ctx.page_size, 2.0)
    return coarse(ctx.prompt_pages - held, 2.0) + busy + (mood + ctx.worker + ctx.side) % ctx.n_workers
'''
EVICTION_FILE = '''"""Reads all there is."""

kind, name = "eviction", "mixed"


def key(ctx):
    age = ctx.seconds - ctx.released_seconds + 0.5 * (ctx.seconds - ctx.born_seconds)
    worth = ctx.uses * ctx.compute_seconds / (ctx.segment_pages * ctx.page_size)
    odd = (ctx.position_pages + ctx.tier + ctx.resident_pages) % 3
    return worth - 0.001 * age + odd * 0.001
'''
RETENTION_FILE = '''"""Reads all there is; some pages stay for ever, and others go at the first check."""

kind, name = "retention", "moody"


def ttl(ctx):
    mood = (ctx.position_pages + ctx.tier + ctx.resident_pages + ctx.uses) % 4
    if mood == 3:
        return 1e300
    age = 0.3 * (ctx.seconds - ctx.released_seconds) + 0.05 * (ctx.seconds - ctx.born_seconds)
    return 0.1 * mood + ctx.compute_seconds * ctx.segment_pages / ctx.page_size + age - 0.02
'''
RETRIEVALS = ("default_policy", "all_compute", "performance_aware", "slowest_tier_first", "half_of_the_front")


def random_trace(rng: random.Random, page: int) -> Trace:
    """Return up to 24 requests whose prompts share prefixes, in bursts and with pauses.

    The names of a prompt may end before its last full page (private pages), at it, or in the page after it.
    """
    # Families that part at once push each other off the device, so that their prompts come back from the host.
    depth, variety = rng.choice(((2, 2), (7, 2), (7, 5)))
    families = [[rng.randrange(variety) for _ in range(rng.randint(depth, 9))] for _ in range(rng.randint(1, 5))]
    pauses = rng.choice([(0.0,), (0.0, 0.0, 0.001, 0.013, 0.4), (0.002, 0.03), (0.05, 0.1, 0.3)])
    names: dict[tuple[int, ...], int] = {}
    requests, time = [], 0.0
    for _ in range(rng.randint(1, 24)):
        time += rng.choice(pauses)
        family = rng.choice(families)
        chosen = [tuple(family[: i + 1]) for i in range(min(len(family), rng.randint(0, 12)))]
        ids = [names.setdefault(prefix, len(names)) for prefix in chosen]
        n_input = max(1, page * len(ids) + rng.choice((0, 0, 1, -1, rng.randint(0, 3 * page))))
        requests.append((time, n_input, rng.choice((1, 2, rng.randint(1, 12))), ids))
    sessions = [rng.choice((0, 1, 2, 3, None)) for _ in requests] if rng.random() < 0.8 else None
    thinks = [rng.choice((math.nan, 0.0, 0.001, 0.02)) for _ in requests] if rng.random() < 0.5 else None
    return trace(requests, page=page, sessions=sessions, thinks=thinks)


def random_config(rng: random.Random, page: int, loops: tuple[str, ...]) -> ClusterConfig:
    """Return a cluster of one to three prefill and one or two decode workers with tight pools and any policies."""
    prefill = [
        {"role": "prefill", "tp": 1, "device_tokens": page * rng.choice((6, 10, 10, 13, 24)) + rng.randrange(page),
         "host_tokens": page * rng.choice((0, 4, 12, 60, 60)), "chunk_tokens": page * rng.choice((1, 2, 4, 16)),
         "max_running": rng.randint(1, 6)}
        for _ in range(rng.choice((1, 1, 1, 2, 3)))
    ]  # fmt: skip
    decode = [
        {"role": "decode", "tp": 1, "device_tokens": page * rng.randint(12, 30), "max_running": rng.randint(1, 5),
         "graph_buckets": rng.choice(([1, 2, 4], [2], [4, 8]))}
        for _ in range(rng.randint(1, 2))
    ]  # fmt: skip
    values = {
        "fidelity": "paper", "page_size": page, "workers": prefill + decode,
        "workload": {"mode": rng.choice(loops), "think_seconds": rng.choice((None, None, 0.0, 0.005))},
        "gateway": {"policy": rng.choice((*GATEWAYS, "coarse")), "seed": rng.randrange(5),
                    "balance_requests": rng.choice((0, 2, 32)), "balance_ratio": rng.choice((1.0, 1.5)),
                    "match_ratio": rng.choice((0.0, 0.3, 0.5)), "prefill_load_scale": rng.choice((0.0, 1.0, 2.3)),
                    "device_credit": rng.choice((0.5, 1.0)), "host_credit": rng.choice((0.0, 0.75)),
                    "active_weight": rng.choice((0.0, 0.0, 3.0))},
        "eviction": {"policy": rng.choice((*EVICTIONS, "mixed")), "xi_tokens": rng.choice((0, 3, 17, 40)),
                     "growth_tokens": rng.choice((None, 0, 7))},
        "retention": {"policy": rng.choice(("none", "none", "none", "idle_ttl", "moody")),
                      "seconds": rng.choice((0.01, 0.1, 0.4)), "check_seconds": rng.choice((0.003, 0.01, 0.1))},
        "retrieval": {"policy": rng.choice(RETRIEVALS), "rate_window_seconds": rng.choice((0.05, 60.0))},
        "write": {"policy": rng.choice(("write_through",) * 4 + ("none",)), "threshold": rng.choice((1, 1, 1, 2, 3))},
        "handoff_sharing": rng.choice(("processor_sharing", *SHARINGS)),
        "slo": {"ttft_seconds": rng.choice((0.003, 0.01, 1.0))},
    }  # fmt: skip
    return parse_config(values, "fuzzed")


def random_profile(rng: random.Random) -> Profile:
    """Return odd figures, where nothing coincides by chance, or round ones, where much happens at one instant."""
    if rng.random() < 0.5:
        step = {"fixed_seconds": 1.1e-3, "token_seconds": 1.3e-4, "token_pair_seconds": 1.7e-6, "least_seconds": 1.9e-3}
        base, per_token, (setup, rate) = [1.1e-3, 1.2e-3, 1.5e-3], [1e-6, 1e-6, 2e-6], (7e-4, 74e6)
    else:
        step = {"fixed_seconds": 0.0, "token_seconds": 1e-3}
        base, per_token, (setup, rate) = [1e-3] * 3, [0.0] * 3, (rng.choice((0.0, 1e-3)), 20e6)
    slower = rng.choice((1, 3, 20))
    return parse_profile(
        {
            "name": "fuzzed", "tp": 1, "n_layers": 4, "kv_bytes_per_token": 20_000.0,
            "prefill": {"boundary": "whole", **step},
            "decode": {"boundary": "whole", "batch": [1, 2, 4], "base_seconds": base,
                       "context_token_seconds": per_token},
            "handoff": path(setup_seconds=setup, bytes_per_s=rate * 2), "h2d": path(bytes_per_s=rate * 3 / slower),
            "d2h": path(setup_seconds=setup / 2, bytes_per_s=rate * 4 / slower),
        },
        "fuzzed",
    )  # fmt: skip


def assert_twins(case: Trace, config: ClusterConfig, profile: Profile, files: list[Path]) -> dict[str, int]:
    """Compare the checked core with the twin; return how often what is to be tested came up."""
    twin = naive_cluster.run(case, config, profile, files)
    ds = kvsweep.cluster.run(case, config, profile, policy_files=files, check=True)
    requests: list[dict[str, Any]] = twin["requests"]
    served = np.array([not request["rejected"] for request in requests])
    assert (ds["rejected"].values == ~served).all()
    kept = [request for request in requests if not request["rejected"]]

    def compare(what: str, found: Any, expected: Any) -> None:
        assert np.asarray(found).tolist() == np.asarray(expected).tolist(), what

    for name in ("arrival", *naive_cluster.TIMES):
        compare(name, picoseconds(ds[name].values[served]), [request[name] for request in kept])
    hits = ds["hit_tokens"].values[served]
    compare("L1", hits[:, 0], [request["l1"] for request in kept])
    compare("L2", hits[:, 1], [request["l2"] for request in kept])
    compare("uncached", ds["uncached_tokens"].values[served], [request["uncached"] for request in kept])
    compare("P", ds["prefill_worker"].values[served], [request["prefill_worker"] for request in kept])
    at_decode = [request["decode_worker"] + config.n_prefill for request in kept]
    compare("D", ds["decode_worker"].values[served], at_decode)
    for cause in ds["cause"].values.tolist():
        delays = ds["queue_delay"].sel(cause=cause).values[served]
        compare(cause, picoseconds(delays), [request["queue_delay"][cause] for request in kept])
    for name in ("evictions", "expirations"):
        compare(name, ds[name].values[: config.n_prefill, :2], twin[name])
    if twin["last_finish"]:
        compare("utilization", ds["utilization"].values, np.array(twin["busy"]) / twin["last_finish"])
    expected = np.zeros(ds["occupancy"].shape)
    expected[: config.n_prefill, :2] = np.reshape(twin["occupancy"][: 2 * config.n_prefill], (-1, 2))
    expected[config.n_prefill :, 0] = twin["occupancy"][2 * config.n_prefill :]
    np.testing.assert_allclose(ds["occupancy"].values, expected, rtol=1e-9, atol=1e-6)
    return {
        "requests": len(requests), "rejected": int((~served).sum()),
        "l1": sum(request["l1"] > 0 for request in kept), "l2": sum(request["l2"] > 0 for request in kept),
        "evictions": int(np.sum(twin["evictions"])), "expirations": int(np.sum(twin["expirations"])),
        **{cause: sum(request["queue_delay"][cause] > 0 for request in kept) for cause in ds["cause"].values.tolist()},
    }  # fmt: skip


def picoseconds(seconds: Any) -> Any:
    return np.round(seconds * 1e12).astype(np.int64)


@pytest.fixture(scope="module")
def policy_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("policies")
    sources = {
        "half_of_the_front.py": FRONT_POLICY, "coarse.py": GATEWAY_FILE, "mixed.py": EVICTION_FILE,
        "moody.py": RETENTION_FILE,
    }  # fmt: skip
    for name, source in sources.items():
        (folder / name).write_text(source)
    return [folder / name for name in sources]


def random_case(seed: int) -> tuple[Trace, ClusterConfig, Profile]:
    rng = random.Random(seed)
    page = rng.randint(1, 8)
    case = random_trace(rng, page)
    loops = ("open", "closed") if (case.turn > 0).any() else ("open",)
    return case, random_config(rng, page, loops), random_profile(rng)


def small_cluster(prefill: dict[str, Any], **changes: Any) -> ClusterConfig:
    return cluster({"chunk_tokens": 16, **prefill}, {"device_tokens": 400}, page_size=4, **changes)


def test_a_prompt_that_fills_the_pool_runs_again() -> None:
    # Its last page is resident and its own, yet no match: computed in its place, or there is no room for it, ever.
    again = trace([(0.0, 16, 2, (1, 2, 3, 4)), (1.0, 16, 2, (1, 2, 3, 4))], page=4)
    assert_twins(again, small_cluster({"device_tokens": 16}), fuzz_profile(), [])


def test_occupancy_ends_where_the_rules_say_whatever_retention_drops_later() -> None:
    kept = small_cluster(
        {"device_tokens": 40}, retention={"policy": "idle_ttl", "seconds": 0.01, "check_seconds": 0.01}
    )
    assert_twins(trace([(0.0, 16, 2, ())], page=4), kept, fuzz_profile(), [])
    # The last arrival fits no pool, and comes when all others are done.
    assert_twins(trace([(0.0, 16, 2, ()), (1.0, 44, 2, ())], page=4), kept, fuzz_profile(), [])


def test_a_request_that_outwaits_the_rate_window_counts_itself() -> None:
    config = small_cluster(
        {"device_tokens": 16, "host_tokens": 80, "max_running": 1},
        retrieval={"policy": "performance_aware", "rate_window_seconds": 1e-6}, slo={"ttft_seconds": 1e-3},
    )  # fmt: skip
    requests = [(0.0, 16, 1, (1, 2, 3, 4)), (1.0, 16, 1, ()), (2.0, 16, 1, ()), (2.0, 16, 1, (1, 2, 3, 4))]
    assert_twins(trace(requests, page=4), config, fuzz_profile(), [])
    # Compiled, a rate of 0 would go unnoticed; the same source in plain Python refuses to divide by it.
    policy = load_policies()["performance_aware"]
    plain_run(initial_state(trace(requests, page=4), config, fuzz_profile(), policy), policy)


@pytest.mark.parametrize("gateway", ["round_robin", "kv_cost"])
def test_hundreds_of_workers(gateway: str) -> None:
    rng = random.Random(1)
    busy = [case for case in (random_trace(rng, 4) for _ in range(40)) if len(case) > 20][:3]
    for case in busy:
        many = cluster(
            {"count": 300, "device_tokens": 160}, {"count": 300, "device_tokens": 160}, page_size=4,
            gateway={"policy": gateway},
        )  # fmt: skip
        few = small_cluster({"device_tokens": 64, "count": 2})
        for config in (many, few):
            assert_twins(case, config, fuzz_profile(), [])


@pytest.mark.parametrize("first", range(0, QUICK + SOAK, BATCH))
def test_core_and_twin_are_equal(first: int, policy_files: list[Path]) -> None:
    for seed in range(first, first + BATCH):
        try:
            assert_twins(*random_case(seed), policy_files)
        except Exception as error:
            raise AssertionError(f"case {seed}: {error}") from error
