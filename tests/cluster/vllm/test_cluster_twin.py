"""vLLM workers behind a gateway against their slow twin: equal per request and worker, on fuzzed small clusters.

``VLLM_SOAK=2000 pytest tests/cluster/vllm/test_cluster_twin.py`` compares 2000 clusters more than the quick run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvsweep.cluster.inputs.config import parse_config
from kvsweep.cluster.inputs.step_profile import step_times
from kvsweep.cluster.outcome.dataset import dataset
from kvsweep.cluster.policies.plugins import select_plugin
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.simulation.run import finish
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.steptime import step_picoseconds
from tests.cluster.vllm.naive_cluster import Cluster
from tests.cluster.vllm.samples import COST, cluster_case, step_profile

QUICK, BATCH = 100, 25
SOAK = int(os.environ.get("VLLM_SOAK", "0"))
PROFILE = step_profile()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    file = tmp_path_factory.mktemp("policies") / "mine.py"
    file.write_text(COST)
    return [file]


def duration(contents: list[tuple[int, int]], graphs: Sequence[int]) -> int:
    """Return the time of a step: the core's own, which has a twin of its own, so that all times are equal."""
    step = np.zeros(c.N_STEP, np.int64)
    for tokens, before in contents:
        step[[c.TOKENS, c.ROWS]] += (tokens, 1)
        if tokens == 1:
            step[[c.DECODES, c.CONTEXT]] += (1, before)
            step[c.LONGEST] = max(step[c.LONGEST], before)
        else:
            step[[c.CHUNK, c.PRIOR, c.PAIRS]] += (tokens, before, tokens * (2 * before + tokens))
    times = step_times(PROFILE, graphs)
    return step_picoseconds(times, times.graphs, step)


def assert_twins(seed: int, files: list[Path]) -> Cluster:
    """Compare the checked core with the twin; return the twin."""
    trace, values = cluster_case(seed)
    config = parse_config(values, "cluster")
    twin = Cluster(trace, config, duration, select_plugin("gateway", config.gateway.policy, files)).run()
    run = finish(trace, config, PROFILE, policy_files=files, check=True)
    request = run.state.request
    for i, job in enumerate(twin.jobs):
        row = request[i]
        assert bool(row[col.REJECTED]) == job.rejected, i
        if job.rejected:
            continue
        times = (row[col.ARRIVAL], row[col.ADMITTED], row[col.BEGAN], row[col.FIRST_TOKEN], row[col.FINISHED])
        assert times == (job.arrival, job.first_scheduled, job.began, job.first_token, job.finish), i
        assert (row[col.AT_PREFILL], row[c.HIT], row[c.PREEMPTIONS]) == (job.worker, job.hit_tokens, job.preemptions), i
        waited = [*row[c.BLOCKED_FOR : c.BLOCKED_FOR + 3], row[c.PREEMPTED_FOR]]
        assert waited == list(job.waited.values()), i
    for worker, row in zip(twin.workers, run.state.prefill, strict=True):
        assert (row[col.EVICTED], row[col.BUSY_TIME]) == (worker.evictions, worker.busy)
    assert_report(twin, run)
    return twin


def assert_report(twin: Cluster, run: Any) -> None:
    """Compare what the Dataset says of workers and windows."""
    ds = dataset(run)
    until = int(run.state.run[col.OCCUPANCY_END])
    for worker, found in zip(twin.workers, ds["occupancy"].values[:, 0], strict=True):
        points = [(time, blocks) for time, blocks in worker.resident if time <= until] + [(until, 0)]
        held = sum(blocks * (later - time) for (time, blocks), (later, _) in zip(points, points[1:], strict=False))
        assert found == pytest.approx(held * twin.page_size / until if until else 0.0, rel=1e-9, abs=1e-6)
    assert ds["delivered_tokens"].sum() == sum(twin.delivered.values())
    first = sum(count for time, count in twin.delivered.items() if time < 10**10)
    assert ds["delivered_tokens"].values[0] == first
    served = ds["rejected"].values == 0
    hits, computed = ds["hit_tokens"].values.sum(axis=1), ds["uncached_tokens"].values
    assert ((hits + computed)[served] == ds["prompt_tokens"].values[served]).all()
    waits = ds["queue_delay"].values[served]
    assert (waits >= 0.0).all()
    before_prefill = ds["prefill_start"].values - ds["arrival"].values
    no_preemption = waits[:, [0, 1, 2, 4]].sum(axis=1)
    np.testing.assert_allclose(no_preemption, before_prefill[served], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("first", range(0, QUICK + SOAK, BATCH))
def test_core_and_twin_are_equal(first: int, files: list[Path]) -> None:
    for seed in range(first, first + BATCH):
        try:
            assert_twins(seed, files)
        except Exception as error:
            raise AssertionError(f"case {seed}: {error}") from error


def test_what_is_to_be_tested_comes_up(files: list[Path]) -> None:
    found = dict.fromkeys(("rejected", "hit", "preempted", "evicted", "sequences", "token_budget", "blocks"), 0)
    for seed in range(60):
        trace, values = cluster_case(seed)
        config = parse_config(values, "cluster")
        twin = Cluster(trace, config, duration, select_plugin("gateway", config.gateway.policy, files)).run()
        for job in twin.jobs:
            found["rejected"] += job.rejected
            found["hit"] += job.hit_tokens > 0
            found["preempted"] += job.preemptions > 0
            for reason in ("sequences", "token_budget", "blocks"):
                found[reason] += job.waited[reason] > 0
        found["evicted"] += sum(worker.evictions > 0 for worker in twin.workers)
    assert min(found.values()) > 20, found
