"""What a sweep will take before it runs: its size from the plan, its speed from a short trial on this machine."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from typing import Any

from kvsweep.grid.evaluate import Announce, Evaluator, Slab, deciding, run_slabs
from kvsweep.grid.plan import Plan
from kvsweep.grid.reduce import check_reduction, kept_bytes
from kvsweep.units import format_quantity

TRIAL_SECONDS = 0.5

# Half of what two cores of a server did (270 MB/s and 330 000 rows/s), so that estimates err upwards.
NETCDF_BYTES_PER_SECOND = 130e6
CSV_ROWS_PER_SECOND = 160e3

NETCDF_BYTES_BESIDES = 200e3
NETCDF_BYTES_PER_LABEL = 1e3
"""Room for the structure and attributes of a NetCDF file, and for each deployment and point of an axis [byte]."""
CSV_BYTES_PER_CELL = 24
"""Longest number with its comma [byte]."""


@dataclass(frozen=True)
class Estimate:
    """Size and duration of a sweep; sizes in bytes, `file_bytes` an upper bound and 0 without a file."""

    points: int
    policies: int
    rows: int
    """Values of each variable in the result: points, or cells of the dims a reduction keeps, times policies."""
    memory_bytes: float
    file_bytes: float
    seconds: float

    def lines(self) -> list[str]:
        """Return the estimate as readers of a terminal want it."""
        file = f"at most {format_quantity(self.file_bytes, 'byte')}" if self.file_bytes else "none (no --output)"
        return [
            f"points    {self.points}",
            f"policies  {self.policies}",
            f"rows      {self.rows} (of the result: policies x points, or x what a reduction keeps)",
            f"memory    {format_quantity(self.memory_bytes, 'byte')} for the result",
            f"file      {file}",
            f"time      about {self.seconds:.2g} s, by a short trial on this machine",
        ]


def estimate(
    plan: Plan, reduction: tuple[Any, Any] | None, suffix: str | None, run: tuple[int | None, Announce]
) -> Estimate:
    """Return the estimate of a sweep: stored, or with `reduction` (names, dims reduced over).

    `suffix` is that of the file it goes to (``.nc``, ``.csv``), None for none; `run` is (threads, announce).
    """
    threads, announce = run
    speed = deciding(plan, announce, lambda sound: points_per_second(sound, threads, announce))
    rows, memory = result_size(plan, reduction)
    file_bytes, writing = 0.0, 0.0
    if suffix == ".nc":
        labels = len(plan.deployments) + sum(plan.shape)
        file_bytes = memory + NETCDF_BYTES_BESIDES + NETCDF_BYTES_PER_LABEL * labels
        writing = memory / NETCDF_BYTES_PER_SECOND
    elif suffix == ".csv":
        file_bytes = CSV_BYTES_PER_CELL * rows * (len(plan.axes) + 6.0)
        writing = rows / CSV_ROWS_PER_SECOND
    return Estimate(plan.n_points, len(plan.policies), rows, memory, file_bytes, plan.n_points / speed + writing)


def result_size(plan: Plan, reduction: tuple[Any, Any] | None) -> tuple[int, float]:
    """Return (rows, memory [byte]) of the result."""
    if reduction is None:
        return plan.n_points * len(plan.policies), float(plan.stored_bytes)
    names, kept = check_reduction(plan, *reduction)
    return math.prod(len(plan.axes[dim]) for dim in kept) * len(plan.policies), kept_bytes(plan, names, kept)


def points_per_second(plan: Plan, threads: int | None, announce: Announce) -> float:
    """Return how many points a second all policies of `plan` are evaluated at, measured on its first slabs."""
    evaluator = Evaluator(plan, announce)

    def work(slab: Slab) -> int:
        rows = evaluator.rows(slab)
        shape = tuple(part.stop - part.start for part in (slab.rows, slab.rates, slab.targets))
        for policy in evaluator.policies.values():
            evaluator.evaluate(policy, rows, slab, evaluator.scratch(shape))
        return slab.n_points

    done, started = 0, time.perf_counter()
    with contextlib.closing(run_slabs(plan, work, threads, None)) as finished:
        for points in finished:
            done += points
            if time.perf_counter() - started > TRIAL_SECONDS:
                break
        elapsed = time.perf_counter() - started
    return done / elapsed
