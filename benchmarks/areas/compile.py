"""What the first run of a cluster costs, and the run itself, beside the commit before cores compiled in one piece.

Each core runs in processes of its own from an empty cache of its own, today's source and that of `COMMIT`, which git
takes from the history; without it (a shallow clone) the area is skipped. Times are of the processor where bars are set
on them beside each other. The trace is that of the cluster area.
"""

from __future__ import annotations

import io
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import yaml

from benchmarks.areas.cluster import service, workload
from benchmarks.data import Skipped
from benchmarks.figures import Figure, in_turn, median_ratio, processor, wall
from kvsweep.cluster.inputs.presets import profile_file
from kvsweep.trace import Trace
from kvsweep.trace.write import lines

ROOT = Path(__file__).parents[2]
COMMIT = "b6568fc"
FIRST = 1500
"""Requests of the run that is timed from an empty cache."""

_POOL = {"count": 8, "tp": 2, "device_tokens": 262_144}
_POOLS = {
    "page_size": 64,
    "workers": [{"role": "prefill", **_POOL, "host_tokens": 524_352}, {"role": "decode", **_POOL}],
}
CLUSTERS = {
    "paper": {"fidelity": "paper", **_POOLS},
    "engine": {"fidelity": "engine", **_POOLS},
    "vllm": {"workers": [{"role": "vllm", "count": 8, "tp": 1, "n_blocks": 30_000}]},
}
"""Cluster files as both commits read them, one for each core."""
STEPS = "h100-sxm-llama-3.1-8b"
"""Profile of the vLLM workers."""

# Prints the processor time [s] of a compiled core alone, the median of so many runs.
CORE = """
import statistics, sys
from kvsweep.cluster import run
trace, config, profile, count = sys.argv[1:]
seconds = [run(trace, config, profile).attrs["kvsweep_cpu_seconds"] for _ in range(1 + int(count))]
print(statistics.median(seconds[1:]))
"""


@dataclass(frozen=True)
class Side:
    """A source of kvsweep: the folder its package lies in, and that of its caches, None for the usual one."""

    source: Path | None
    caches: Path | None

    def environment(self, cache: str) -> dict[str, str]:
        """Return the environment of a process that runs this source, `cache` being the name of its cache."""
        found = dict(os.environ)
        if self.source is not None:
            found["PYTHONPATH"] = str(self.source)
        if self.caches is not None:
            found["KVSWEEP_CACHE_DIR"] = str(self.caches / cache)
        return found

    def compiling(self, folder: Path) -> list[str]:
        """Return the option that compiles whatever the size of a run, where there is one: earlier all were compiled.

        `folder` is any without a package: Python looks where it is started first.
        """
        command = [sys.executable, "-m", "kvsweep", "cluster", "run", "--help"]
        how = {"cwd": folder, "env": self.environment("help")}
        text = subprocess.run(command, check=True, capture_output=True, text=True, **how).stdout
        return ["--compile"] if "--compile" in text else []


@dataclass(frozen=True)
class Bench:
    """What all figures are made of: the folder with traces, cluster files and profile, and both sources."""

    folder: Path
    trace: str
    requests: int
    rounds: int
    now: Side
    then: Side


def measure(tiny: bool) -> list[Figure]:
    """Return the figures of each core; when tiny, of one, beside itself and with the cache there is."""
    name, trace = workload(tiny)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        now = Side(None, None if tiny else folder / "now")
        then = now if tiny else Side(earlier(folder / "then"), folder / "caches")
        bench = Bench(folder, name, len(trace), 1 if tiny else 5, now, then)
        for file, part in (("trace.jsonl", trace), ("few.jsonl", trace.select(slice(0, FIRST)))):
            (folder / file).write_text("".join(f"{line}\n" for line in lines(alone(part), "mooncake")))
        (folder / "profile.yaml").write_text(profile_file(service()))
        found = []
        for core in ["engine"] if tiny else CLUSTERS:
            (folder / f"{core}.yaml").write_text(yaml.safe_dump(CLUSTERS[core]))
            found += [first_run(bench, core), warm_core(bench, core), small_trace(bench, core)]
    return found


def earlier(folder: Path) -> Path:
    """Return the `folder` with the package as it was at `COMMIT`, laid out as it is installed."""
    git = ["git", "-C", str(ROOT)]
    if subprocess.run([*git, "cat-file", "-e", f"{COMMIT}^{{commit}}"], capture_output=True).returncode:
        raise Skipped(f"the history here has no commit {COMMIT}; `git fetch --unshallow` brings it")
    kept = subprocess.run([*git, "archive", COMMIT, "kvsweep", "hardware"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(kept)) as archive:
        archive.extractall(folder, filter="data")
    (folder / "hardware").rename(folder / "kvsweep" / "hardware")
    return folder


def alone(trace: Trace) -> Trace:
    """Return `trace` with every request for itself, which readers of all times read alike."""
    return replace(trace, session=np.full(len(trace), -1), think=np.full(len(trace), np.nan))


def files(core: str) -> tuple[str, str]:
    """Return cluster file and profile of a core."""
    return f"{core}.yaml", STEPS if core == "vllm" else "profile.yaml"


def command(core: str, options: Sequence[str] = ()) -> list[str]:
    """Return ``kvsweep cluster run`` of few requests, to be run in the folder of the files."""
    config, profile = files(core)
    run = [sys.executable, "-m", "kvsweep", "cluster", "run", "few.jsonl", "--config", config, "--profile", profile]
    return [*run, "-o", "run.nc", "--force", "--quiet", *options]


def first_run(bench: Bench, core: str) -> Figure:
    """Return the processor time of the first command from an empty cache, compiled, beside that of `COMMIT`."""
    now, then = (
        processor(command(core, side.compiling(bench.folder)), cwd=bench.folder, env=side.environment(core))()
        for side in (bench.now, bench.then)
    )
    name = f"first kvsweep cluster run from an empty cache, {core}, CPU time"
    return Figure(name, now, "s", COMMIT, then, now / then).at_most(0.2)


def warm_core(bench: Bench, core: str) -> Figure:
    """Return requests per CPU second of the core alone, beside those of `COMMIT`, medians of processes in turn."""

    def seconds(side: Side) -> Callable[[], float]:
        run = [sys.executable, "-c", CORE, "trace.jsonl", *files(core), str(bench.rounds)]
        how = {"cwd": bench.folder, "env": side.environment(core)}
        return lambda: float(subprocess.run(run, check=True, capture_output=True, text=True, **how).stdout)

    now, then = in_turn([seconds(bench.now), seconds(bench.then)], bench.rounds)
    rate, before = (bench.requests / max(statistics.median(times), 1e-9) for times in (now, then))
    name = f"{bench.trace}: requests per CPU second of the compiled core, {core}"
    return Figure(name, rate, "1/s", COMMIT, before, median_ratio(then, now)).at_least(0.95)


def small_trace(bench: Bench, core: str) -> Figure:
    """Return the wall time of a command on few requests from an empty cache beside the time it may take.

    The first one reads the trace, too, and compiles or does not as it thinks best.
    """
    run = partial(subprocess.run, command(core), check=True, capture_output=True, cwd=bench.folder)
    first = wall(partial(run, env=bench.now.environment(f"{core}-small")))()
    (warm,) = in_turn([wall(partial(run, env=bench.now.environment(core)))], bench.rounds)
    allowed = 3.0 * statistics.median(warm) + 10.0
    name = f"first {FIRST} requests from an empty cache, {core}"
    return Figure(name, first, "s", "3 x the warm command + 10 s", allowed, first / allowed).at_most(1)
