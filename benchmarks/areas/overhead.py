"""The overhead harness: the speed of a decision beside twins, and whether the harness measures what it should."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from benchmarks import policies
from benchmarks.figures import Figure, median_ratio
from kvsweep.overhead.dataset import overhead_dataset
from kvsweep.overhead.harness import run
from kvsweep.overhead.inputs import PATHS
from kvsweep.overhead.plan import make_overhead_plan
from kvsweep.overhead.record import summary

SCAN = "performance_aware"
PROCESSES = 5
"""Processes in which the scan is timed beside its twins: what is near 1.5 is the median of several."""
STUDENT_2 = 4.303
"""Student's t of 95 % with two degrees of freedom: four points less slope and intercept."""


def measure(tiny: bool) -> list[Figure]:
    """Return all figures of the overhead harness."""
    sizes = {"pool_size": 8, "combination_reps": 20, "combination_rounds": 3, "warmup_decisions": 100}
    if not tiny:
        sizes = {"pool_size": 128, "combination_reps": 300, "combination_rounds": 15, "warmup_decisions": 20_000}
    with tempfile.TemporaryDirectory() as folder:
        files = policies.calibrating(Path(folder))
        ds = calibration({**sizes, "policy_files": files, "request_counts": "1,100" if tiny else "1,100,10000"})
        costs = [twins(files, sizes) for _ in range(1 if tiny else PROCESSES)]
    return [*beside_twins(costs), *speeds(ds), *linear(ds), *floor(ds), harness_ratio(ds), full_run(tiny)]


def calibration(options: dict[str, Any]) -> xr.Dataset:
    """Return the results of one run of the harness."""
    plan = make_overhead_plan(options)
    return overhead_dataset(plan, run(plan))


def in_mode(ds: xr.Dataset, policy: str, path: str, mode: str) -> float:
    """Return the median cost [us] of a policy on the combinations where the scan's mode is `mode`."""
    labels = ds["decision_mode"].attrs["flag_meanings"].split()
    here = ds["decision_mode"].sel(policy=SCAN).values == labels.index(mode)
    cost = 1e6 * ds["decision_seconds"].sel(policy=policy, path=path).values[here]
    return float(np.median(cost)) if cost.size else float("nan")


# Prints what `measured_twins` returns, for the options it is given.
TWINS = """
import json, sys
from benchmarks.areas.overhead import measured_twins
print(json.dumps(measured_twins(json.loads(sys.argv[1]))))
"""


def twins(files: Sequence[Path], sizes: Mapping[str, int]) -> dict[str, list[float]]:
    """Return `measured_twins` of a process of its own, which lies in memory in its own way."""
    options = {**sizes, "policy_files": [str(file) for file in files]}
    command = [sys.executable, "-c", TWINS, json.dumps(options)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def measured_twins(options: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the cost [us] of the scan, of its twin inlined by hand and of the reference's ranking, of each mode."""
    names = SCAN, "inlined", "ranked"
    ds = calibration({**options, "policies": names, "paths": "scalar", "request_counts": "1"})
    return {mode: [in_mode(ds, name, "scalar", mode) for name in names] for mode in ("best_effort", "balanced")}


def beside_twins(costs: Sequence[Mapping[str, Sequence[float]]]) -> list[Figure]:
    """Return the scan in Python beside its twins; `costs` are those of several processes."""
    found = []
    for mode in ("best_effort", "balanced"):
        scan, inlined, ranked = ([cost[mode][which] for cost in costs] for which in range(3))
        name, value = f"{SCAN} in Python, {mode}", statistics.median(scan)
        beside = Figure(
            name, value, "us", "inlined by hand", statistics.median(inlined), median_ratio(scan, inlined)
        ).at_most(1.5, " x")
        found.append(beside)
        if mode == "best_effort":
            baseline = "reference's ranking, inlined"
            found.append(Figure(name, value, "us", baseline, statistics.median(ranked), median_ratio(scan, ranked)))
    return found


def speeds(ds: xr.Dataset) -> list[Figure]:
    """Return the compiled scan beside Python."""
    cost = in_mode(ds, SCAN, "scalar", "best_effort")
    compiled = in_mode(ds, SCAN, "jit_loop", "best_effort")
    name = f"{SCAN} in a compiled loop, best_effort"
    loop = Figure(name, compiled, "us", "Python", cost, cost / compiled).at_least(100, " x as fast")
    called = in_mode(ds, SCAN, "jit_call", "best_effort")
    return [loop, Figure(f"{SCAN} called compiled, best_effort", called, "us", "Python", cost, cost / called)]


@dataclass(frozen=True)
class Line:
    """A least-squares line: slope, intercept with its 95 % half-width, and the share of variance it explains."""

    slope: float
    intercept: float
    half_width: float
    r2: float


def line(counts: Sequence[float], added: Sequence[float]) -> Line:
    """Return the line through four points (counts, added)."""
    x, y = np.asarray(counts, dtype=float), np.asarray(added)
    slope, intercept = np.polyfit(x, y, 1)
    residual = y - (slope * x + intercept)
    spread = np.sqrt((residual**2).sum() / 2 * (x**2).mean() / ((x - x.mean()) ** 2).sum())
    return Line(float(slope), float(intercept), STUDENT_2 * float(spread), float(1.0 - residual.var() / y.var()))


def linear(ds: xr.Dataset) -> list[Figure]:
    """Return how linear the added cost is in the number of decisions, on each path, and what none would add."""
    found = []
    for path in PATHS:
        rows = [summary(ds, f"times_{count}", path)["added_us"] for count in policies.COUNTS]
        fit = line(policies.COUNTS, [row["median"] for row in rows])
        name = f"added cost of 1, 2, 4, 8 decisions, {path}, R2"
        found.append(Figure(name, fit.r2, "1", "", None, fit.r2).at_least(0.99))
        # What the line leaves open, and what every added cost does: how much no decision costs.
        noise = fit.half_width + max(high - low for low, high in (row["median_interval"] for row in rows)) / 2
        found.append(
            Figure(
                f"added cost of no decision by that line, {path}", fit.intercept, "us", "noise", noise,
                abs(fit.intercept) / noise,
            ).at_most(1, " x the noise")
        )  # fmt: skip
    return found


def floor(ds: xr.Dataset) -> list[Figure]:
    """Return what a policy without decision adds, which is nothing within its interval."""
    found = []
    for path in PATHS:
        added = summary(ds, "no_decision", path)["added_us"]
        low, high = added["mean_interval"]
        name = f"added cost of a policy that decides nothing, {path}"
        bar = f"{low:.2g} to {high:.2g} holds 0"
        found.append(Figure(name, added["mean"], "us", "", None, None, bar, low <= 0.0 <= high))
    return found


def harness_ratio(ds: xr.Dataset) -> Figure:
    """Return the processor time of the run beside that of the decisions it timed."""
    ratio, decisions = float(ds.attrs["harness_ratio"]), float(ds.attrs["decision_seconds_in_all"])
    name = "calibration run of the harness"
    return Figure(name, ratio * decisions, "s", "its decisions", decisions, ratio).at_most(1.3, " x")


def full_run(tiny: bool) -> Figure:
    """Return the time of the whole command with the reference's defaults on the scalar path."""
    small = ["--max-requests", "10", "--pool-size", "8", "--combination-reps", "20"] if tiny else []
    command = [sys.executable, "-m", "kvsweep", "overhead", "--paths", "scalar", "--format", "json", "--quiet", *small]
    before = os.times()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    after = os.times()
    # Processor time, as that of the decisions: other processes slow both down.
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    decisions = json.loads(done.stdout)["decision_seconds_in_all"]
    name = "kvsweep overhead --paths scalar, defaults"
    return Figure(name, seconds, "s", "its decisions", decisions, seconds / decisions).at_most(1.5, " x")
