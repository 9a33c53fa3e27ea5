"""The overhead harness: the speed of a decision beside twins, and whether the harness measures what it should."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from benchmarks import policies
from benchmarks.figures import Figure
from kvsweep.overhead.dataset import overhead_dataset
from kvsweep.overhead.harness import run
from kvsweep.overhead.inputs import PATHS
from kvsweep.overhead.plan import make_overhead_plan
from kvsweep.overhead.record import summary

SCAN = "performance_aware"
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
    found = [*speeds(ds), *linear(ds), *floor(ds), harness_ratio(ds), full_run(tiny)]
    return [without_bar(figure) for figure in found] if tiny else found


def calibration(options: dict[str, Any]) -> xr.Dataset:
    """Return the results of one run of the harness."""
    plan = make_overhead_plan(options)
    return overhead_dataset(plan, run(plan))


def without_bar(figure: Figure) -> Figure:
    """Return a figure that is too small to judge."""
    return Figure(figure.name, abs(figure.value), figure.unit)


def in_mode(ds: xr.Dataset, policy: str, path: str, mode: str) -> float:
    """Return the median cost [us] of a policy on the combinations where the scan's mode is `mode`."""
    labels = ds["decision_mode"].attrs["flag_meanings"].split()
    here = ds["decision_mode"].sel(policy=SCAN).values == labels.index(mode)
    cost = 1e6 * ds["decision_seconds"].sel(policy=policy, path=path).values[here]
    return float(np.median(cost)) if cost.size else float("nan")


def speeds(ds: xr.Dataset) -> list[Figure]:
    """Return the scan beside its twins in Python, and compiled beside Python."""
    found = []
    for mode in ("best_effort", "balanced"):
        cost, twin = in_mode(ds, SCAN, "scalar", mode), in_mode(ds, "inlined", "scalar", mode)
        ratio = cost / twin
        name = f"{SCAN} in Python, {mode}"
        found.append(Figure(name, cost, "us", "inlined by hand", twin, ratio, "<= 1.5 x", ratio <= 1.5))
    ranked = in_mode(ds, "ranked", "scalar", "best_effort")
    cost = in_mode(ds, SCAN, "scalar", "best_effort")
    name = f"{SCAN} in Python, best_effort"
    found.append(Figure(name, cost, "us", "reference's ranking, inlined", ranked, cost / ranked))
    compiled = in_mode(ds, SCAN, "jit_loop", "best_effort")
    ratio = cost / compiled
    name = f"{SCAN} in a compiled loop, best_effort"
    found.append(Figure(name, compiled, "us", "Python", cost, ratio, ">= 100 x as fast", ratio >= 100.0))
    called = in_mode(ds, SCAN, "jit_call", "best_effort")
    found.append(Figure(f"{SCAN} called compiled, best_effort", called, "us", "Python", cost, cost / called))
    return found


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
        found.append(Figure(name, fit.r2, "1", "", None, fit.r2, ">= .99", fit.r2 >= 0.99))
        # What the line leaves open, and what every added cost does: how much no decision costs.
        noise = fit.half_width + max(high - low for low, high in (row["median_interval"] for row in rows)) / 2
        found.append(
            Figure(
                f"added cost of no decision by that line, {path}", fit.intercept, "us", "noise", noise,
                abs(fit.intercept) / noise, "<= 1 x the noise", abs(fit.intercept) <= noise,
            )
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
    return Figure(name, ratio * decisions, "s", "its decisions", decisions, ratio, "<= 1.3 x", ratio <= 1.3)


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
    passed = seconds <= decisions + 10.0
    return Figure(
        "kvsweep overhead --paths scalar, defaults", seconds, "s", "its decisions", decisions, seconds / decisions,
        "<= decisions + 10 s", passed,
    )  # fmt: skip
