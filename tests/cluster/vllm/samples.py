"""Made-up profiles and workloads for the tests of vLLM workers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvsweep.cluster.inputs.step_profile import StepProfile, Table
from kvsweep.cluster.policies.gateway import POLICIES as GATEWAYS
from kvsweep.cluster.simulation.lone_worker import Arrival
from kvsweep.cluster.vllm.steptime import StepTimes
from kvsweep.trace.model import Trace
from tests.cluster.samples import trace


def step_times(**changed: object) -> StepTimes:
    """Return tables whose answers are easy: 1 ms and 10 µs a token, 1 µs a request, attention by tokens read."""
    chunk, prior, decodes, context = ([0.0, 64.0, 256.0], [0.0, 128.0, 512.0], [0.0, 2.0, 8.0], [0.0, 64.0, 512.0])
    grid = np.array(
        [[[[1e-8 * (q * (p + q / 2) + 8 * n * k) for k in context] for n in decodes] for p in prior] for q in chunk]
    )
    times = StepTimes(
        tokens=np.array([1.0, 256.0]),
        token_seconds=np.array([1.01e-3, 3.56e-3]),
        sequences=np.array([1.0, 8.0]),
        sequence_seconds=np.array([1e-6, 8e-6]),
        chunk=np.array(chunk),
        prior=np.array(prior),
        decodes=np.array(decodes),
        context=np.array(context),
        attention_seconds=grid.ravel(),
        skew_decodes=np.array([2.0, 4.0, 8.0]),
        skew_chunk=np.array([0.0, 16.0, 64.0]),
        skew=np.array([0.0, 0.4, 0.3, 0.2, 0.3, 0.2, 0.1, 0.2, 0.1]),
        graphs=np.array([1.0, 2.0, 4.0, 8.0]),
        scalars=np.array([1e-5, 2e-6, 4.0, 0.0, 512.0]),
    )
    return times._replace(**changed)


def workload(seed: int, count: int, shared: int = 3) -> list[Arrival]:
    """Return `count` requests of a few shared prefixes, four tokens a block, in bursts."""
    random = np.random.default_rng(seed)
    made: list[Arrival] = []
    keys = 10_000
    at = 0.0
    for _ in range(count):
        at += float(random.choice([0.0, 0.0, 0.001, 0.004]))
        prompt, output = int(random.integers(1, 60)), int(random.integers(1, 20))
        group = int(random.integers(shared))
        common = int(random.integers(0, prompt // 4 + 1))
        own = list(range(keys, keys + (prompt + output) // 4 - common))
        keys += len(own)
        made.append(Arrival(at, prompt, output, [group * 100 + i for i in range(common)] + own))
    return made


def table(*axes: list[float], seconds: np.ndarray | list[float], rows: int = 7) -> Table:
    """Return a made-up part of a step profile."""
    return Table(
        boundary="whole", source="made up", rows=rows, axes=tuple(map(tuple, axes)),
        seconds=tuple(np.asarray(seconds, float).ravel().tolist()),
    )  # fmt: skip


def step_profile(**changed: Any) -> StepProfile:
    """Return the profile behind `step_times`."""
    times = step_times()
    values: dict[str, Any] = {
        "name": "made up", "model": "llama-3.1-8b", "gpu": "none", "tp": 1, "kv_bytes_per_token": 1000.0,
        "weights_bytes": 1e6,
        "tokens": table([1.0, 256.0], seconds=times.token_seconds),
        "sequences": table([1.0, 8.0], seconds=times.sequence_seconds),
        "attention": table(
            times.chunk.tolist(), times.prior.tolist(), times.decodes.tolist(), times.context.tolist(),
            seconds=times.attention_seconds,
        ),
        "skew": table(times.skew_decodes.tolist(), times.skew_chunk.tolist(), seconds=times.skew),
        "split_below": 4.0, "captured_saving_seconds": 1e-5, "overhead_seconds": 2e-6,
    }  # fmt: skip
    return StepProfile(**{**values, **changed})


COST = """\
kind, name = "gateway", "mine"


def cost(ctx):
    held = ctx.device_pages / ctx.prompt_pages
    return ctx.load_pages + ctx.prefill_pages - 5 * held + ctx.draw * ctx.load_requests + 0.01 * ctx.session
"""
"""A gateway policy that looks at most of what there is."""


def cluster_case(seed: int) -> tuple[Trace, dict[str, Any]]:
    """Return a small trace and the cluster file of a few tight vLLM workers, of any policy."""
    rng = np.random.default_rng(seed)
    page = int(rng.choice((2, 4, 8)))
    families = [rng.integers(0, 2, 14).tolist() for _ in range(rng.integers(1, 6))]
    requests, time = [], 0.0
    for _ in range(int(rng.integers(2, 45))):
        time += float(rng.choice((0.0, 0.0, 0.0007, 0.0031, 0.011, 0.06)))
        steps = families[rng.integers(len(families))][: rng.integers(0, 15)]
        # The name of a block follows from the choices up to it, so that families share what they choose alike.
        ids = [int("1" + "".join(map(str, steps[: k + 1])), 2) for k in range(len(steps))]
        n_input = max(1, 4 * len(ids) + int(rng.integers(0, 9)))
        requests.append((time, n_input, int(rng.integers(1, 22)), ids))
    sessions = rng.integers(0, 4, len(requests))
    sessions[:2] = 0  # in closed loop there must be a request that follows another
    groups = []
    for _ in range(int(rng.integers(1, 3))):
        count, blocks = int(rng.integers(1, 4)), int(rng.integers(40, 110)) // page
        budget, sequences = int(rng.choice((3, 8, 24, 70))), int(rng.integers(1, 8))
        groups.append({
            "role": "vllm", "count": count, "tp": 1, "n_blocks": 1 + blocks, "token_budget": budget,
            "max_sequences": sequences, "reserve_full": bool(rng.integers(3)),
            "steps_in_flight": int(rng.integers(1, 3)), "prefix_cache": bool(rng.integers(6)),
            "graph_buckets": [[], [1, 2, 4, 8], [4, 16]][rng.integers(3)],
        })  # fmt: skip
    config = {
        "page_size": page, "workers": groups, "window_seconds": 0.01,
        "gateway": {"policy": str(rng.choice((*GATEWAYS, "mine"))), "seed": int(rng.integers(9)), "active_weight": 0.5,
                    "balance_requests": int(rng.integers(0, 4)), "balance_ratio": 1.1, "match_ratio": 0.2},
        "workload": {"mode": str(rng.choice(("open", "closed"))), "think_seconds": [None, 0.01][rng.integers(2)]},
    }  # fmt: skip
    return trace(requests, page=4, sessions=sessions.tolist()), config
