"""A study of whole clusters: more than a thousand full simulations, against the single runs it is made of.

The trace is Mooncake's conversation trace below KVSWEEP_DATA, else a generated one of the same rate. The study runs
as users run it, in a process of its own; its baseline is what its cells take alone, one after the other. Processor
times hardly change with other work on the machine; wall times do, and want quiet cores.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.data import conversation
from benchmarks.figures import Figure
from kvsweep.catalog import load
from kvsweep.cluster.inputs.presets import cluster_file
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.cluster.inputs.service_profile import profile_mapping
from kvsweep.cluster.simulation.run import run
from kvsweep.studies.running.cells import cells
from kvsweep.studies.running.workloads import Workloads
from kvsweep.studies.study import parse_study

ALONE = 36
"""Cells that are run alone, drawn at random: every n-th one may share a point of an axis, and its cost."""
BATCH = 864
"""Simulations whose wall time is told."""


def study(tiny: bool) -> dict[str, Any]:
    """Return gateway x eviction x topology x host memory x TTL: 1008 cells, 8 of them when tiny."""
    found = None if tiny else conversation()
    generated = {
        "generate": "qa", "sessions": 10 if tiny else 2400, "request_rate": 3.4, "input_tokens": 12_000,
        "output_tokens": 340,
    }  # fmt: skip
    axes: dict[str, list[Any]] = {
        "gateway": ["round_robin", "least_loaded", "power_of_two", "cache_aware"], "eviction": ["lru", "lfu"],
        "n_prefill": [4, 8, 12], "host_tokens": [0, 131_072, 524_288, 2_097_152, 8_388_608, 33_554_432],
        "ttl": [1.0, 10.0, 60.0, 120.0, 300.0, 1000.0, float("inf")],
    }  # fmt: skip
    return {
        "title": "benchmark",
        "cluster": {
            **yaml.safe_load(cluster_file("bench", 8, 2, "engine")),
            "name": "bench",
            "context": {"beyond": "serve"},
        },
        "profile": {"label": "roofline", **profile_mapping(roofline(load(), "qwen3-8b", "h100-sxm", 2))},
        "trace": str(found) if found else generated,
        "axes": {**{name: points[:2] for name, points in axes.items() if name in ("gateway", "ttl", "host_tokens")}}
        if tiny
        else {**axes, "n_decode": [8]},
    }


def measure(tiny: bool) -> list[Figure]:
    """Return the wall time of the study beside its single runs, and its memory."""
    values = study(tiny)
    checked = parse_study(values, "benchmark")
    listed, workloads = cells(checked), Workloads(checked)
    drawn = np.random.default_rng(0).choice(len(listed), 2 if tiny else ALONE, replace=False)
    alone = []
    # The first one more often: it compiles where nothing is cached.
    for cell in [listed[0], *(listed[index] for index in drawn)]:
        assert cell.config is not None and cell.profile is not None
        trace = workloads.trace(cell.workload)
        start = time.process_time()
        run(trace, cell.config, cell.profile)
        alone.append(time.process_time() - start)
    cores = len(os.sched_getaffinity(0))
    expected = sum(alone[1:]) / len(alone[1:]) * len(listed)
    wall, busy, memory = _study_process(values)
    name = "generated trace" if isinstance(values["trace"], dict) else "conversation trace"
    ratio = busy / max(expected, 1e-9)
    return [
        Figure(
            f"{name}: study of {len(listed)} simulations, processor time", busy, "s", "single runs", expected, ratio
        ).at_most(1.3),
        # No bar on wall times: other work on the machine takes its share of the cores, of the baseline's not.
        Figure(
            f"{name}: wall time of the study on {cores} cores", wall, "s", f"single runs / {cores}", expected / cores,
            wall / max(expected / cores, 1e-9),
        ),
        Figure(f"{name}: wall time of {BATCH} simulations of it", wall / len(listed) * BATCH, "s"),
        Figure(f"{name}: peak memory of the study", memory, "MB"),
    ]  # fmt: skip


def _study_process(values: dict[str, Any]) -> tuple[float, float, float]:
    """Return wall time, processor time [s] and peak memory [MB] of ``kvsweep cluster sweep``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.yaml"
        path.write_text(yaml.safe_dump(values, sort_keys=False))
        command = [sys.executable, "-m", "kvsweep", "cluster", "sweep", str(path), "-o", f"{folder}/study.nc", "-q"]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, busy, after.ru_maxrss / 1e3
