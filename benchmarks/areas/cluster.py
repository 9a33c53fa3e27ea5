"""Speed of the cluster simulator on the Mooncake conversation trace, 8 prefill and 8 decode workers, page 64.

Without that trace (KVSWEEP_DATA names the folder of `mooncake/`) a generated one of the same rate stands in. The
baselines are the same source, uncompiled, and the slow twin of the tests, the rules written with objects; compiling
and parsing are timed apart.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.data import conversation
from benchmarks.figures import Figure, beside, in_turn, processor
from kvsweep.catalog import load
from kvsweep.cluster.inputs.config import ClusterConfig, config_mapping, parse_config
from kvsweep.cluster.inputs.presets import profile_file
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.cluster.inputs.service_profile import Profile
from kvsweep.cluster.setup.initial_state import initial_state
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.simulation.cores import compiled_run, plain_run
from kvsweep.policies import load_policies
from kvsweep.policies.registry import Policy
from kvsweep.trace import Trace, read_trace
from kvsweep.trace.generate import generate
from kvsweep.trace.write import lines


def workload(tiny: bool) -> tuple[str, Trace]:
    """Return the name of the trace and the trace."""
    found = None if tiny else conversation()
    if found:
        return "conversation trace", read_trace(found)
    sessions = 20 if tiny else 2400
    return "generated trace", generate("qa", sessions, 1, request_rate=3.4, input_tokens=12_000.0, output_tokens=340.0)


def cluster(page_size: int, count: int = 8, fidelity: str = "engine") -> ClusterConfig:
    """Return `count` prefill and as many decode workers of the paper's pools."""
    common = {"count": count, "tp": 2, "device_tokens": 262_144}
    return parse_config(
        {
            # All of the trace is to be simulated, also what is beyond the context of the model.
            "fidelity": fidelity, "page_size": page_size, "context": {"beyond": "serve"},
            "workers": [{"role": "prefill", "host_tokens": 524_352, **common}, {"role": "decode", **common}],
        },
        "benchmark",
    )  # fmt: skip


def service() -> Profile:
    """Return the profile of all runs."""
    return roofline(load(), "qwen3-8b", "h100-sxm", 2)


def begin(trace: Trace, page_size: int, count: int = 8, fidelity: str = "engine") -> tuple[State, Policy]:
    """Return the state before the first arrival."""
    policy = load_policies()["default_policy"]
    return initial_state(trace, cluster(page_size, count, fidelity), service(), policy), policy


def run_seconds(trace: Trace, page_size: int = 64, count: int = 8, fidelity: str = "engine") -> float:
    """Return the CPU time of a run [s]."""
    state, policy = begin(trace, page_size, count, fidelity)
    start = time.process_time()
    compiled_run(state, policy)
    return time.process_time() - start


def median_seconds(trace: Trace, rounds: int, fidelity: str = "engine") -> float:
    """Return the median CPU time of `rounds` runs [s]."""
    return statistics.median(run_seconds(trace, fidelity=fidelity) for _ in range(rounds))


def measure(tiny: bool) -> list[Figure]:
    """Return requests per CPU second, compiled beside uncompiled, and the cost of small pages."""
    name, trace = workload(tiny)
    start = time.perf_counter()
    compiled_run(*begin(trace, 64))  # compiles where nothing is cached
    first = time.perf_counter() - start
    rounds = 1 if tiny else 9
    seconds = median_seconds(trace, rounds)
    return [
        beside_the_source(name, trace, seconds, tiny, "engine"),
        Figure(f"{name}: simulated time over CPU time", trace.duration / max(seconds, 1e-9), "1"),
        small_pages(name, trace, rounds),
        beside_the_twin(name, trace, tiny),
        many_copies(name, trace, tiny),
        whole_command(name, trace, tiny),
        Figure(f"{name}: first run, compiling where nothing is cached", first, "s"),
        *at_scale(name, trace, 20 if tiny else 1000, rounds),
        beside_the_source(name, trace, median_seconds(trace, rounds, "paper"), tiny, "paper"),
    ]


def at_scale(name: str, trace: Trace, count: int, rounds: int) -> list[Figure]:
    """Return time and memory of `count` + `count` workers under as much more load than 8 + 8.

    The trace is played that much faster, so that each worker sees requests at the same rate.
    """
    faster = replace(trace, arrival=trace.arrival * 8.0 / count)
    times = in_turn([lambda: run_seconds(faster, 64, count), lambda: run_seconds(trace)], rounds)
    memory = sum(array.nbytes for array in begin(faster, 64, count)[0])
    what = f"{name}, {count / 8:g} x the rate on {count} + {count} workers"
    figure = beside(f"{what}: a request", "us", "8 + 8 workers", times, 1e6 / len(trace))
    return [figure.at_most(2), Figure(f"{what}: state", memory / 1e6, "MB")]


def beside_the_source(name: str, trace: Trace, seconds: float, tiny: bool, fidelity: str) -> Figure:
    """Return requests per CPU second of a run of `seconds` beside those of the same source, uncompiled."""
    few = trace.select(slice(0, min(len(trace), 20 if tiny else 600)))
    start = time.process_time()
    plain_run(*begin(few, 64, fidelity=fidelity))
    plain = (time.process_time() - start) / len(few)
    rate, plain_rate = len(trace) / max(seconds, 1e-9), 1.0 / max(plain, 1e-9)
    what = f"{name}: requests, fidelity {fidelity}"
    return Figure(what, rate, "1/s", "uncompiled source", plain_rate, rate / plain_rate).at_least(100)


def small_pages(name: str, trace: Trace, rounds: int) -> Figure:
    """Return the CPU time of a run with pages of 16 tokens beside that with pages of 512."""
    times = in_turn([lambda: run_seconds(trace, 16), lambda: run_seconds(trace, 512)], rounds)
    return beside(f"{name}: run with pages of 16", "s", "pages of 512", times).at_most(1.3)


def beside_the_twin(name: str, trace: Trace, tiny: bool) -> Figure:
    """Return requests per CPU second beside the slow twin, on the first requests, whose times must be equal.

    Few, as the twin goes over all there are at every instant: 50 take it ten seconds, 150 a hundred.
    """
    few = trace.select(slice(0, min(len(trace), 10 if tiny else 50)))
    twin, words = _of_the_tests("naive"), _of_the_tests("core")
    profile = replace(service(), tp=1)  # the twin knows no GPUs
    pools = {"device_tokens": 262_144, "max_running": 32}
    rules = twin.Rules(
        groups=[twin.Group("prefill", host_tokens=524_352, **pools)] * 8 + [twin.Group("decode", **pools)] * 8,
        prebuilt=round(cluster(64).engine.prebuilt_seconds * 1e12), n_layers=load().models["qwen3-8b"].shape.layers,
    )  # fmt: skip
    start = time.process_time()
    slow = twin.run(few, rules, profile)
    slow_rate = len(few) / (time.process_time() - start)
    if words.run(few, rules, profile, check=False)["requests"] != slow["requests"]:
        raise AssertionError("the simulator and its slow twin differ")
    rate = len(few) / max(median_seconds(few, 1 if tiny else 20), 1e-9)
    return Figure(f"{name}: first {len(few)} requests", rate, "1/s", "slow twin", slow_rate, rate / slow_rate).at_least(
        100
    )


def _of_the_tests(module: str) -> Any:
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.append(root)
    return importlib.import_module(f"tests.cluster.engine.{module}")


def copies(trace: Trace, count: int) -> Trace:
    """Return `count` copies of the trace one after the other, which share no blocks."""
    place = np.repeat(np.arange(count), len(trace))
    n_blocks, period = int(trace.blocks.max(initial=-1)) + 1, trace.duration + 1.0
    return replace(
        trace,
        arrival=np.tile(trace.arrival, count) + place * period,
        input_tokens=np.tile(trace.input_tokens, count),
        output_tokens=np.tile(trace.output_tokens, count),
        session=np.full(len(place), -1),
        turn=np.zeros(len(place), dtype=np.int64),
        group=np.full(len(place), -1),
        think=np.full(len(place), np.nan),
        offsets=np.append(0, np.cumsum(np.tile(trace.n_blocks, count))),
        blocks=(np.tile(trace.blocks, count) + np.repeat(np.arange(count), len(trace.blocks)) * n_blocks).astype("i4"),
    )


def many_copies(name: str, trace: Trace, tiny: bool) -> Figure:
    """Return the CPU time of a request in a trace 40 times as long, beside that of a request in the trace alone."""
    count = 2 if tiny else 40
    long = copies(trace, count)
    works = [lambda: run_seconds(long) / len(long), lambda: run_seconds(trace) / len(trace)]
    times = in_turn(works, 1 if tiny else 5)
    return beside(f"{name}: a request of {count} copies in turn", "us", "of one", times, 1e6).at_most(1.5)


# All that `kvsweep cluster run` must do before it can simulate, where no trace is kept from the run before.
READER = """
import sys
import kvsweep.cli, kvsweep.cluster.outcome.events, kvsweep.cluster.simulation.run, netCDF4, xarray
from pathlib import Path
from kvsweep.trace import read_trace
print(len(read_trace(Path(sys.argv[1]), cache=False)))
"""


def whole_command(name: str, trace: Trace, tiny: bool) -> Figure:
    """Return the CPU time of a warm ``kvsweep cluster run`` beside a process that imports the same and parses alone."""
    with tempfile.TemporaryDirectory() as folder:
        path, config, profile = (Path(folder) / file for file in ("trace.jsonl", "cluster.yaml", "profile.yaml"))
        found = None if tiny else conversation()
        if found is None:
            path.write_text("".join(f"{line}\n" for line in lines(trace, "kvsweep")))
        config.write_text(yaml.safe_dump(config_mapping(cluster(64))))
        profile.write_text(profile_file(service()))
        run = [sys.executable, "-m", "kvsweep", "cluster", "run", str(found or path), "--config", str(config),
               "--profile", str(profile), "-o", f"{folder}/run.nc", "--force", "--quiet"]  # fmt: skip
        warm, parse = processor(run), processor([sys.executable, "-c", READER, str(found or path)])
        warm()  # what it keeps for the next time
        times = in_turn([warm, parse], 1 if tiny else 7)
    return beside(f"{name}: kvsweep cluster run, warm, CPU time", "s", "imports and parsing", times).at_most(1.5)
