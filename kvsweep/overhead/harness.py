"""Times every policy on every path: streams of growing length, then each combination of the pool alone.

What is compared is measured side by side: one trial of a stream, or one round of a combination, runs all policies
and paths in a fresh random order, so that drift of the machine hits all alike. A fixed piece of work, timed again
and again through the run, tells how much the machine itself drifted.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter, thread_time

import numpy as np
from numpy.typing import NDArray

from kvsweep.errors import PolicyError
from kvsweep.jit import policies as jit
from kvsweep.jit import timing
from kvsweep.overhead.inputs import trials
from kvsweep.overhead.plan import OverheadPlan
from kvsweep.overhead.timers import LoopRequests, LoopTimer, PythonTimer, Timer
from kvsweep.policies.context import Context
from kvsweep.policies.registry import Policy

Array = NDArray[np.float64]
Key = tuple[str, str]
"""(policy, path); the policy of a loop without a decision is `LOOP`."""

Progress = Callable[[int, int], None]
"""Called with (decisions done, decisions in all), each counted once for all policies and paths."""

LOOP = ""
LEAST_SECONDS = 4e-4
"""Least length [s] of a measurement of a compiled loop, beside which the clock and the call are small."""
LOOP_SECONDS = 1e-4
"""The same without a decision: enough for the mean of many, and little beside the decisions."""
CONTROL_EVERY = 0.01
"""Time [s] between two control measurements, which take about a hundredth of it."""


@dataclass(frozen=True)
class Timings:
    """What was measured. Times include the loop, which `loops` and the policy `LOOP` of `streams` hold alone."""

    streams: Mapping[Key, Sequence[Array]]
    """For each request count, the times [s] of its trials."""
    rounds: Mapping[Key, Array]
    """Time of one decision [s], (round, combination)."""
    loops: Mapping[str, Array]
    """Time of the path's loop for one decision [s], (round,)."""
    reps: Mapping[Key, int]
    """Decisions in each measurement of a combination."""
    control: Array
    """Times [s] of the control, in order."""
    decision_seconds: float
    """Time [s] of all timed decisions together."""
    run_seconds: float
    """Processor time [s] of the run, without compilation."""
    problems: Sequence[str]
    """A line for each policy that has no compiled path."""

    @property
    def harness_ratio(self) -> float:
        """Processor time of the run over that of the decisions it timed [1]."""
        return self.run_seconds / self.decision_seconds


def compiling(plan: OverheadPlan) -> list[str]:
    """Return the policies that will be compiled first, which takes seconds each."""
    if not any(path.startswith("jit") for path in plan.paths):
        return []
    policies = [subject.policy for subject in plan.subjects]
    return [policy.name for policy in policies if not jit.is_compiled(policy, timing)]


def run(plan: OverheadPlan, progress: Progress | None = None) -> Timings:
    """Return the timings of a plan; a policy that cannot be compiled has none on the compiled paths."""
    timers, loops, problems = _timers(plan)
    return _Run(plan, timers, loops, progress or (lambda done, total: None)).timings(problems)


def _timers(plan: OverheadPlan) -> tuple[dict[Key, Timer], dict[str, Timer], list[str]]:
    """Return what is timed, the bare loop of each path, and a line for each policy Numba refuses."""
    requests = LoopRequests(plan.subjects[0].requests)
    timers: dict[Key, Timer] = {}
    problems = []
    for subject in plan.subjects:
        policy = subject.policy
        if "scalar" in plan.paths:
            timers[policy.name, "scalar"] = PythonTimer(policy.decide, subject.requests)
        if plan.paths == ("scalar",):
            continue
        try:
            kernels = jit.timing_kernels(policy)
        except PolicyError as error:
            problems.append(f"timed on the scalar path only: {error}")
            continue
        if "jit_call" in plan.paths:
            timers[policy.name, "jit_call"] = PythonTimer(kernels.one, subject.requests)
        if "jit_loop" in plan.paths:
            timers[policy.name, "jit_loop"] = LoopTimer(kernels.many, requests)
    if not timers:
        raise PolicyError(f"no policy can be timed: {'; '.join(problems)}")
    loops: dict[str, Timer] = {}
    for path in plan.paths:
        if path == "jit_loop":
            loops[path] = LoopTimer(jit.timing_kernels(_NO_POLICY).many, requests)
        else:
            loops[path] = PythonTimer(None, plan.subjects[0].requests)
    return timers, loops, problems


def _no_decision(ctx: Context) -> tuple[float, int]:
    return 0.0, 0


_NO_POLICY = Policy(
    name="no_policy", label="Loop", description="No decision.", color="#000000", order=0.0, recomputes="any",
    modes=("none",), decide=_no_decision, origin="the overhead harness",
)  # fmt: skip


class _Run:
    """One run of the harness: its clock, its order of measurements, and what it has measured so far."""

    def __init__(
        self, plan: OverheadPlan, timers: Mapping[Key, Timer], loops: Mapping[str, Timer], progress: Progress
    ) -> None:
        self._plan = plan
        self._timers = {**timers, **{(LOOP, path): timer for path, timer in loops.items()}}
        self._order = random.Random(f"order of measurements {plan.seed}")
        self._keys = list(self._timers)
        self._progress = progress
        self._control: list[float] = []
        self._next_control = 0.0
        self._decision_seconds = 0.0
        self._done = 0
        self._total = plan.decisions

    def timings(self, problems: Sequence[str]) -> Timings:
        """Measure everything and return it."""
        gc.collect()
        gc.disable()
        try:
            start = thread_time()
            reps = self._warm_up()
            streams = self._streams()
            rounds = self._combinations(reps)
            spent = thread_time() - start
        finally:
            gc.enable()
        return Timings(
            streams=streams, rounds={key: rounds[key] for key in self._keys if key[0] != LOOP},
            # The loop is the same for all combinations: their median is free of what disturbed single ones.
            loops={path: np.median(rounds[LOOP, path], axis=1) for path in self._plan.paths},
            reps=reps, control=np.array(self._control), decision_seconds=self._decision_seconds, run_seconds=spent,
            problems=problems,
        )  # fmt: skip

    def _warm_up(self) -> dict[Key, int]:
        """Run what is timed for the first time and return the decisions of each in a measurement of a combination."""
        plan = self._plan
        reps = {}
        for key, timer in self._timers.items():
            timer.stream(0, plan.warmup_decisions)
            reps[key] = plan.combination_reps
            if key[1] == "jit_loop":
                least = LOOP_SECONDS if key[0] == LOOP else LEAST_SECONDS
                seconds = min(timer.combination(0, 20_000) for _ in range(5)) / 20_000
                reps[key] = max(plan.combination_reps, math.ceil(least / seconds))
        return reps

    def _streams(self) -> dict[Key, list[Array]]:
        """Return the times [s] of the trials of each request count."""
        found: dict[Key, list[Array]] = {key: [] for key in self._keys}
        size = len(self._plan.pool)
        for count in self._plan.request_counts:
            times = {key: np.empty(trials(count)) for key in self._keys}
            for trial in range(trials(count)):
                for key in self._shuffled():
                    times[key][trial] = self._timers[key].stream(trial * count % size, count)
                self._advance(count)
            for key in self._keys:
                found[key].append(times[key])
                # By the median: in the wall clock's trials, the rest is the time of other processes.
                self._count(key, trials(count) * float(np.median(times[key])))
        return found

    def _combinations(self, reps: Mapping[Key, int]) -> dict[Key, Array]:
        """Return the time of one decision [s], (round, combination), loop included."""
        shape = self._plan.combination_rounds, len(self._plan.pool)
        found = {key: np.empty(shape) for key in self._keys}
        for turn in range(shape[0]):
            for index in range(shape[1]):
                for key in self._shuffled():
                    seconds = self._timers[key].combination(index, reps[key])
                    found[key][turn, index] = seconds / reps[key]
                    self._count(key, seconds)
                self._advance(self._plan.combination_reps)
        return found

    def _shuffled(self) -> list[Key]:
        self._order.shuffle(self._keys)
        return self._keys

    def _count(self, key: Key, seconds: float) -> None:
        """Add `seconds` to the time of the decisions, unless they are the loop's."""
        if key[0] != LOOP:
            self._decision_seconds += seconds

    def _advance(self, decisions: int) -> None:
        """Time the control when it is due, and report progress."""
        self._done += decisions
        if perf_counter() >= self._next_control:
            self._control.append(control_seconds())
            self._next_control = perf_counter() + CONTROL_EVERY
            self._progress(self._done, self._total)


def control_seconds() -> float:
    """Return the time [s] of a fixed piece of plain Python, about 0.1 ms."""
    start = thread_time()
    value = 0.0
    for _ in range(2500):
        value = value * 0.5 + 1.0
    return thread_time() - start
