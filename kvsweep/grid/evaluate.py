"""Evaluates a plan slab by slab on all cores: the full arrays, or whatever a reduction makes of each slab."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kvsweep.errors import InputError, PolicyError
from kvsweep.grid.plan import Plan
from kvsweep.jit import kernels
from kvsweep.policies.context import LINEAR
from kvsweep.policies.registry import Policy, PolicySet, reason_of
from kvsweep.signals import ENDS

T = TypeVar("T")

SLAB_POINTS = 1 << 18
"""Points in a slab: large against the cost of a call, small against the caches and against waiting for Ctrl-C."""

Progress = Callable[[int, int], None]
"""Called with (points done, points in all), a point counted once for all policies."""

Announce = Callable[[str], None]
"""Called with a line that says what the user waits for."""


@dataclass(frozen=True)
class Slab:
    """A contiguous part of the flat grid: whole rows, or a part of one row cut along rate or target."""

    rows: slice
    rates: slice
    targets: slice
    n_points: int


def slabs(n_rows: int, n_rates: int, n_targets: int, size: int = SLAB_POINTS) -> Iterator[Slab]:
    """Yield slabs of about `size` points that cover rows × rates × targets in C order."""
    cells = n_rates * n_targets
    if cells <= size:
        step = max(1, size // cells)
        for row in range(0, n_rows, step):
            stop = min(row + step, n_rows)
            yield Slab(slice(row, stop), slice(0, n_rates), slice(0, n_targets), (stop - row) * cells)
        return
    rate_step, target_step = max(1, size // n_targets), min(size, n_targets)
    for row in range(n_rows):
        for rate in range(0, n_rates, rate_step):
            rate_stop = min(rate + rate_step, n_rates)
            for target in range(0, n_targets, target_step):
                stop = min(target + target_step, n_targets)
                points = (rate_stop - rate) * (stop - target)
                yield Slab(slice(row, row + 1), slice(rate, rate_stop), slice(target, stop), points)


class DecisionError(PolicyError):
    """A policy that compiled and then decided nonsense at some point of the grid; `policy` is its name."""

    def __init__(self, policy: str, message: str) -> None:
        super().__init__(message)
        self.policy = policy


def _spread(length: int) -> list[int]:
    """Return a few indices spread over 0..length - 1, both ends among them."""
    return sorted({0, length // 3, 2 * length // 3, length - 1})


def _row(index: int) -> Slab:
    return Slab(slice(index, index + 1), slice(0, 1), slice(0, 1), 1)


class Evaluator:
    """Evaluates slabs of a plan; one object serves all threads, each with buffers of its own."""

    def __init__(self, plan: Plan, announce: Announce) -> None:
        from kvsweep.jit import policies as jit

        self.plan = plan
        self._deployments = np.array([deployment.rates() for deployment in plan.deployments], dtype=np.float64)
        self._totals = plan.numbers("total_blocks")
        self._fractions = plan.fractions()
        self._hits = plan.numbers(plan.hit_dim)
        self._hits_are_misses = plan.hit_dim == "miss_blocks"
        if not self._hits_are_misses:
            from kvsweep.costs.placement import hit_percent

            self._hits = np.array([hit_percent(float(ratio)) for ratio in self._hits])
        self._rates, self._targets = plan.numbers("request_rate"), plan.numbers("p95_seconds")
        self._local = threading.local()
        self._positional = bool((self._deployments[:, kernels.D_OVERLAP] != LINEAR).any())
        listed = plan.policies.values()
        waiting = [policy.name for policy in listed if not jit.is_compiled(policy, positional=self._positional)]
        if waiting:
            announce(f"compiling {', '.join(waiting)} (once for each policy and machine, a few seconds) …")
        self._fill_rows = jit.row_kernel()
        self.policies, problems = self._compile(jit)
        self.problems = (*plan.policies.problems, *problems)

    def _compile(self, jit: ModuleType) -> tuple[PolicySet, list[str]]:
        """Return the policies Numba accepts, and one line for each it does not."""
        rows = self.rows(_row(0)).copy()
        arguments = (rows, self._rates[:1], self._targets[:1], self.buffers((1, 1, 1)))
        compiled, problems = [], []
        self._kernels = {}
        for policy in self.plan.policies.values():
            try:
                self._kernels[policy.name] = jit.compiled_kernel(policy, arguments, self._positional)
            except PolicyError as error:
                problems.append(f"left out: {error}")
            else:
                compiled.append(policy)
                problems += self._differing(policy)
        if not compiled:
            raise PolicyError(f"no policy can be evaluated: {'; '.join(problems)}")
        return PolicySet(compiled), problems

    def _differing(self, policy: Policy) -> list[str]:
        """Return a warning where the kernel and plain Python disagree on a few points spread over the grid.

        Python raises where IEEE arithmetic goes on (a division by zero, say) and has integers without end. Built-in
        policies are proved equal by the tests.
        """
        if policy.origin.startswith("built in"):
            return []
        from kvsweep.jit.policies import row_context

        rows = np.concatenate([self.rows(_row(index)).copy() for index in _spread(self.plan.n_rows)], axis=1)
        rates, targets = (axis[_spread(axis.size)] for axis in (self._rates, self._targets))
        shape = (rows.shape[1], rates.size, targets.size)
        out = tuple(np.empty(shape, dtype) for dtype in ("f8", "f8", "i1", "i1"))
        try:
            self._kernels[policy.name](rows, rates, targets, out)
        except ENDS:
            raise
        except BaseException:  # where it fails the evaluation proper leaves the policy out, and says so
            return []
        for row, rate, target in np.ndindex(shape):
            ctx = row_context(policy, rows[:, row].tolist(), float(rates[rate]), float(targets[target]))
            where = f"at {ctx.total_blocks:g} blocks, {ctx.miss_blocks:g} missing, {ctx.request_rate:g}/s"
            try:
                chosen, mode = policy.choose(ctx)
            except PolicyError as error:
                return [f"{error}, {where}; the kernel goes on by IEEE arithmetic, where x/0 is inf"]
            cell = (row, rate, target)
            if chosen != out[0][cell] or policy.modes.index(mode) != out[3][cell]:
                return [
                    f"policy {policy.name}: plain Python gives k = {chosen:g}, the kernel {out[0][cell]:g}, {where}"
                ]
        return []

    def buffers(self, shape: tuple[int, ...]) -> tuple[NDArray[Any], ...]:
        """Return fresh (reassigned blocks, total time, SLO met, decision mode) arrays of `shape`."""
        return tuple(np.empty(shape, dtype) for dtype in (self.plan.dtype, self.plan.dtype, "i1", "i1"))

    def scratch(self, shape: tuple[int, ...]) -> tuple[NDArray[Any], ...]:
        """Return this thread's `buffers`, used again while slabs keep their shape: fresh memory is far slower."""
        held = getattr(self._local, "scratch", None)
        if held is None or held[0].shape != shape:
            held = self._local.scratch = self.buffers(shape)
        return held

    def rows(self, slab: Slab) -> NDArray[np.float64]:
        """Return the row fields (field, row) of a slab."""
        count = slab.rows.stop - slab.rows.start
        held = getattr(self._local, "rows", None)
        if held is None or held.shape[1] != count:
            held = self._local.rows = np.empty((kernels.N_ROW_FIELDS, count))
        self._fill_rows(
            slab.rows.start, self._deployments, self._totals, self._fractions, self._hits, self._hits_are_misses, held
        )
        return held

    def evaluate(self, policy: Policy, rows: NDArray[np.float64], slab: Slab, out: Sequence[NDArray[Any]]) -> None:
        """Fill the four arrays of `out` with the decisions of `policy` on a slab whose rows are `rows`."""
        arguments = rows, self._rates[slab.rates], self._targets[slab.targets], tuple(out)
        try:
            nonsense = self._kernels[policy.name](*arguments)
        except (MemoryError, *ENDS):
            raise
        except BaseException as error:  # a decision that raises somewhere on the grid
            message = f"policy {policy.name} ({policy.origin}): decide failed: {reason_of(error)}"
            raise DecisionError(policy.name, message) from error
        if nonsense:
            raise DecisionError(
                policy.name,
                f"policy {policy.name} ({policy.origin}): {nonsense} decisions in one slab are nonsense; "
                f"allowed: a number of blocks and one of the modes {', '.join(policy.modes)}",
            )


def run_slabs(
    plan: Plan, work: Callable[[Slab], Any], threads: int | None, progress: Progress | None
) -> Generator[Any, None, None]:
    """Yield ``work(slab)`` for every slab of `plan`, in order, computed on `threads` cores.

    Few slabs are ever in flight, so memory stays bounded; on an error or Ctrl-C the rest is cancelled.
    """
    workers = threads or available_cores()
    queue = slabs(plan.n_rows, *plan.shape[-2:])
    done = 0
    pending: list[tuple[Slab, Future[Any]]] = []
    with ThreadPoolExecutor(workers) as pool:
        try:
            while True:
                while len(pending) < 2 * workers and (slab := next(queue, None)) is not None:
                    pending.append((slab, pool.submit(work, slab)))
                if not pending:
                    return
                slab, future = pending.pop(0)
                # Waiting in short turns lets Ctrl-C through.
                while not wait([future], timeout=0.2, return_when=FIRST_COMPLETED).done:
                    pass
                yield future.result()
                done += slab.n_points
                if progress:
                    progress(done, plan.n_points)
        finally:
            for _, future in pending:
                future.cancel()


def evaluate_grid(
    plan: Plan, threads: int | None = None, progress: Progress | None = None, announce: Announce = lambda line: None
) -> tuple[PolicySet, dict[str, NDArray[Any]], tuple[str, ...]]:
    """Return (policies, arrays, problems) of the whole grid.

    The arrays are ``reassigned_hit_blocks, total_time, meets_slo, decision_mode`` (policy, row, rate, target) with
    local mode codes, and ``storage_throughput`` (row,), ``tier_hit_blocks`` (row, 3). Raises InputError where they
    cannot fit in memory.
    """
    require_memory(plan.stored_bytes, f"storing {plan.n_points:.4g} points x {len(plan.policies)} policies")
    evaluator = Evaluator(plan, announce)
    shape = (len(evaluator.policies), plan.n_rows, *plan.shape[-2:])
    names = ("reassigned_hit_blocks", "total_time", "meets_slo", "decision_mode")
    arrays = dict(zip(names, evaluator.buffers(shape), strict=True))
    storage, in_tier = np.empty(plan.n_rows), np.empty((plan.n_rows, 3))

    def work(slab: Slab) -> None:
        rows = evaluator.rows(slab)
        storage[slab.rows] = rows[kernels.STORAGE]
        in_tier[slab.rows] = rows[kernels.VRAM_HIT : kernels.DISK_HIT + 1].T
        for index, policy in enumerate(evaluator.policies.values()):
            out = [array[index, slab.rows, slab.rates, slab.targets] for array in arrays.values()]
            evaluator.evaluate(policy, rows, slab, out)

    for _ in run_slabs(plan, work, threads, progress):
        pass
    return evaluator.policies, arrays | {"storage_throughput": storage, "tier_hit_blocks": in_tier}, evaluator.problems


def deciding(plan: Plan, announce: Announce, work: Callable[[Plan], T]) -> T:
    """Return ``work(plan)`` without the policies that decide nonsense, whose results would cost the others theirs."""
    while True:
        try:
            return work(plan)
        except DecisionError as error:
            plan = dataclasses.replace(plan, policies=plan.policies.without(error.policy, str(error)))
            announce(f"starting over without policy {error.policy}")


def require_memory(needed: float, what: str) -> None:
    """Raise InputError where `needed` bytes for `what` are more than this machine can give."""
    available = available_memory()
    if needed > 0.9 * available:
        raise InputError(
            f"{what} needs {needed / 1e9:.3g} GB of memory and {available / 1e9:.3g} GB are free; allowed: fewer "
            "points, fewer policies, or a reduction that streams (reduce success_rate, sufficient, ...)"
        )


def available_memory() -> float:
    """Return the memory [byte] this machine can still give out."""
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
