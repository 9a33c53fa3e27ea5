"""The overhead harness: its pool, its timers and their interleaving, its statistics, and what it finds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import kvsweep
from benchmarks import policies
from benchmarks.areas.overhead import calibration, line
from kvsweep.errors import InputError, PolicyError
from kvsweep.jit import policies as jit
from kvsweep.overhead import harness, timers
from kvsweep.overhead.dataset import overhead_dataset, warnings
from kvsweep.overhead.harness import LOOP
from kvsweep.overhead.host import host
from kvsweep.overhead.inputs import DEFAULTS, PATHS, stream_lengths, trials
from kvsweep.overhead.plan import make_overhead_plan
from kvsweep.overhead.pool import draw_pool
from kvsweep.overhead.record import record, summary
from kvsweep.overhead.statistics import costs, drift
from kvsweep.policies.registry import load_policies
from kvsweep.results.netcdf import write_netcdf
from tests.conftest import reference_cases
from tests.policies.test_registry import SOURCE, written

TINY: dict[str, Any] = {
    "pool_size": 6, "combination_reps": 5, "combination_rounds": 3, "request_counts": "1,7,20", "warmup_decisions": 10,
}  # fmt: skip


def test_the_pool_is_the_reference_s() -> None:
    (case,) = reference_cases("overhead_pool")
    expected, inputs = case["expected"], case["inputs"]
    assert (DEFAULTS["pool_size"], DEFAULTS["seed"]) == (inputs["pool_size"], inputs["seed"])
    pool = draw_pool(inputs["pool_size"], inputs["seed"])
    assert [work._asdict() for work in pool[:5]] == expected["first5"]
    assert sum(work.total_blocks for work in pool) == expected["sum_total_blocks"]
    assert sum(work.miss_blocks for work in pool) == expected["sum_miss_blocks"]
    assert draw_pool(5, inputs["seed"]) == pool[:5]

    parts = {name: inputs[name] for name in ("gpu", "dram", "disk", "link")}
    for subject in make_overhead_plan(parts).subjects:
        if subject.policy.name in expected["decision_modes"]:
            modes = expected["decision_modes"][subject.policy.name]
            assert {mode: list(subject.modes).count(mode) for mode in modes} == modes
            mean = sum(subject.service_seconds) / len(pool)
            assert mean == pytest.approx(expected["mean_service_seconds"][subject.policy.name], rel=1e-12)


def test_streams_of_the_reference() -> None:
    assert stream_lengths(10**6) == [1, 3, 10, 32, 100, 316, 1000, 3162, 10000, 31623, 100000, 316228, 1000000]
    assert stream_lengths(50) == [1, 3, 10, 32, 50]
    assert stream_lengths(1) == [1]
    assert [trials(count) for count in (1, 10, 11, 1000, 1001, 100_000, 100_001)] == [400, 400, 60, 60, 8, 8, 3]


@pytest.mark.parametrize("name", load_policies().unasked(False))
def test_compiled_paths_decide_as_the_scalar_path(name: str) -> None:
    (subject,) = (one for one in make_overhead_plan({"pool_size": 300}).subjects if one.policy.name == name)
    kernels = jit.timing_kernels(subject.policy)
    requests = timers.LoopRequests(subject.requests)
    timers.LoopTimer(kernels.many, requests).stream(10, 700)
    for i, request in enumerate([*subject.requests[10:], *subject.requests[:10]]):
        k, mode = subject.policy.decide(request)
        code = subject.policy.modes.index(str(mode))
        assert (requests.reassigned[i], requests.modes[i]) == (k, code)
        assert kernels.one(request) == (k, code)


def test_a_compiled_loop_turns_around_copies_that_differ_in_their_last_bits() -> None:
    requests = timers.LoopRequests(make_overhead_plan({"pool_size": 3}).subjects[0].requests)
    copies, original = requests.copies(1), requests.turned(1)[:, :1]
    assert copies.shape[1] == timers.COPIES
    assert len(np.unique(copies[0])) == timers.COPIES
    assert np.allclose(copies, original, rtol=1e-13, atol=0.0)
    assert np.array_equal(
        requests.turned(2)[:, 0], np.array(make_overhead_plan({"pool_size": 3}).subjects[0].requests[2])
    )


def test_an_edited_policy_is_compiled_anew(tmp_path: Path) -> None:
    request = make_overhead_plan({"pool_size": 1}).subjects[0].requests[0]
    for factor in ("2", "4"):
        path = written(tmp_path, SOURCE.replace("/ 2", f"/ {factor}"))
        one = jit.timing_kernels(load_policies([path])["half"]).one
        assert one(request)[0] == request.hit_blocks / float(factor)


class FakeTimer:
    """Answers with a cost of its own for each decision, and logs who was asked for what."""

    def __init__(self, key: harness.Key, cost: float, log: list[tuple[Any, ...]]) -> None:
        self.key, self.cost, self.log = key, cost, log

    def stream(self, first: int, count: int) -> float:
        self.log.append(("stream", first, count, self.key))
        return self.cost * count

    def combination(self, index: int, count: int) -> float:
        self.log.append(("combination", index, count, self.key))
        return self.cost * count


def faked(
    monkeypatch: pytest.MonkeyPatch, seed: int, cost: dict[str, float]
) -> tuple[harness.Timings, list[tuple[Any, ...]]]:
    """Return the timings of a run whose policies cost what `cost` says, and the log of its measurements."""
    plan = dataclasses.replace(make_overhead_plan({**TINY, "paths": "scalar"}), seed=seed)
    log: list[tuple[Any, ...]] = []
    timed: dict[harness.Key, Any] = {(name, "scalar"): FakeTimer((name, "scalar"), cost[name], log) for name in cost}
    loops: dict[str, Any] = {"scalar": FakeTimer((LOOP, "scalar"), 0.25, log)}
    monkeypatch.setattr(harness, "_timers", lambda plan: (timed, loops, []))
    return harness.run(plan), log


def test_policies_are_interleaved_in_every_trial_and_round(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {"a": 1.0, "b": 2.0, "c": 3.0}
    timings, log = faked(monkeypatch, 1, cost)
    measured = log[4:]  # warm-up first
    groups = [measured[at : at + 4] for at in range(0, len(measured), 4)]
    everyone = {(name, "scalar") for name in (*cost, LOOP)}
    for group in groups:
        assert {entry[-1] for entry in group} == everyone
        assert len({entry[:-1] for entry in group}) == 1
    assert len({tuple(entry[-1] for entry in group) for group in groups}) > 10
    streams = [group[0][1:3] for group in groups if group[0][0] == "stream"]
    assert streams == [(trial * count % 6, count) for count in (1, 7, 20) for trial in range(trials(count))]
    combinations = [group[0][1:3] for group in groups if group[0][0] == "combination"]
    assert combinations == [(index, 5) for _ in range(3) for index in range(6)]
    assert np.all(timings.rounds["b", "scalar"] == 2.0) and np.all(timings.loops["scalar"] == 0.25)
    assert timings.decision_seconds == pytest.approx(6.0 * sum(count for _, count in streams + combinations))


def test_the_order_is_the_seed_s_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {"a": 1.0, "b": 2.0, "c": 3.0}
    first, again, other = (faked(monkeypatch, seed, cost) for seed in (1, 1, 2))
    assert first[1] == again[1] != other[1]
    for name in cost:
        assert np.array_equal(first[0].rounds[name, "scalar"], other[0].rounds[name, "scalar"])


def rounds_of(*means: float, noise: float = 0.0, rounds: int = 5) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(3)
    shape = (len(means), rounds, 40)
    return np.array(means)[:, None, None] + noise * generator.standard_normal((len(means), rounds, 1)) + np.zeros(shape)


def test_costs_subtract_loop_and_baseline() -> None:
    found = costs(rounds_of(10.0, 1.5, 2.5), np.full(5, 0.5), [1, 2], seed=1)
    assert np.allclose(found.decision, [[9.5] * 40, [1.0] * 40, [2.0] * 40])
    assert np.allclose(found.added, [[8.0] * 40, [-0.5] * 40, [0.5] * 40])
    for bound in (found.mean_bound, found.median_bound):
        assert bound.shape == (3, 2)
        low, high = bound.T
        assert np.all(low < found.added.mean(axis=1)) and np.all(found.added.mean(axis=1) < high)
        # Neither baseline policy decides anything: both intervals hold 0, and so does that of any like them.
        assert np.all(low[1:] < 0.0) and np.all(high[1:] > 0.0) and low[0] > 0.0


def test_intervals_grow_with_the_drift_between_rounds() -> None:
    quiet, noisy = (costs(rounds_of(10.0, 1.0, 1.0, noise=noise), np.zeros(5), [1, 2], 1) for noise in (0.01, 1.0))
    assert np.diff(noisy.mean_bound[0]) > 10.0 * np.diff(quiet.mean_bound[0])


def test_a_policy_of_other_models_is_timed_when_asked_for() -> None:
    plan = make_overhead_plan({**TINY, "policies": "cake", "paths": "scalar"})
    assert {subject.policy.name for subject in plan.subjects} == {"cake", *plan.baseline}


def test_one_baseline_policy_is_enough() -> None:
    found = costs(rounds_of(10.0, 1.0), np.zeros(5), [1], seed=1)
    assert np.allclose(found.added[1], 0.0) and np.allclose(found.added[0], 9.0)


def test_drift_is_told_from_noise() -> None:
    generator = np.random.default_rng(1)
    steady = 1.0 + 0.02 * generator.standard_normal(800)
    assert drift(steady) < 0.02
    spiky = np.where(generator.uniform(size=800) < 0.05, 30.0, steady)
    assert drift(spiky) < 0.02
    assert drift(steady * np.linspace(1.0, 1.5, 800)) > 0.3
    assert drift(np.array([1.0])) == 0.0


def test_a_drifting_host_is_warned_of() -> None:
    plan = make_overhead_plan({**TINY, "paths": "scalar"})
    timings = harness.run(plan)
    assert not [line for line in warnings(plan, dataclasses.replace(timings, control=np.ones(80))) if "noisy" in line]
    (line,) = warnings(plan, dataclasses.replace(timings, control=np.linspace(1.0, 2.0, 80)))
    assert "the host is noisy" in line


class Runs:
    """Runs of the harness with policies of known relations, each made when the ones before it did not show a relation.

    On a machine shared with others a run may be disturbed for seconds, so one that misses a relation says nothing; a
    relation that is broken is broken in every run.
    """

    most = 4

    def __init__(self, folder: Path) -> None:
        self.options = {
            "policy_files": policies.calibrating(folder), "pool_size": 16, "combination_reps": 300,
            "combination_rounds": 15, "request_counts": "1,100", "warmup_decisions": 2000,
        }  # fmt: skip
        self.made: list[xr.Dataset] = []

    def show(self, relation: Callable[[xr.Dataset], bool]) -> bool:
        """Return whether the relation holds in one of the runs."""
        return any(relation(run) for run in self.runs())

    def runs(self) -> Iterator[xr.Dataset]:
        """Yield the runs made so far, then further ones up to the most."""
        for index in range(self.most):
            if index == len(self.made):
                self.made.append(calibration(self.options))
            yield self.made[index]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("policies"))


@pytest.mark.parametrize("path", PATHS)
def test_added_cost_is_linear_in_the_number_of_decisions(calibrated: Runs, path: str) -> None:
    """The bar of .99 is the benchmark's; called compiled, a decision hides in a dispatch fifty times as long."""

    def linear(run: xr.Dataset) -> bool:
        added = [summary(run, f"times_{count}", path)["added_us"]["median"] for count in policies.COUNTS]
        fit = line(policies.COUNTS, added)
        return fit.slope > 0.0 and fit.r2 >= (0.9 if path == "jit_call" else 0.98)

    assert calibrated.show(linear)


@pytest.mark.parametrize("path", PATHS)
def test_no_decision_adds_nothing(calibrated: Runs, path: str) -> None:
    def nothing(run: xr.Dataset) -> bool:
        low, high = summary(run, "no_decision", path)["added_us"]["mean_interval"]
        return bool(low <= 0.0 <= high)

    assert calibrated.show(nothing)


@pytest.mark.parametrize("path", ["scalar", "jit_loop"])
def test_the_ranking_is_that_of_the_work(calibrated: Runs, path: str) -> None:
    names = ["no_decision", *(f"times_{count}" for count in policies.COUNTS)]

    def ranked(run: xr.Dataset) -> bool:
        cost = [summary(run, name, path)["cost_us"]["median"] for name in names]
        return cost == sorted(cost)

    assert calibrated.show(ranked)


def test_a_compiled_decision_takes_nanoseconds(calibrated: Runs) -> None:
    assert calibrated.show(lambda run: summary(run, "performance_aware", "jit_loop")["cost_us"]["median"] < 0.05)


def test_the_harness_costs_little_beside_what_it_times(calibrated: Runs) -> None:
    assert calibrated.show(lambda run: 1.0 < run.attrs["harness_ratio"] <= 1.3)


def test_the_twins_decide_as_the_shipped_policy(tmp_path: Path) -> None:
    """To the last bit, so judging by time alone is judging by violation, then time."""
    files = policies.calibrating(tmp_path)
    plan = make_overhead_plan({"policy_files": files, "pool_size": 20_000, "placement": "auto"})
    subjects = {subject.policy.name: subject for subject in plan.subjects}
    shipped = subjects["performance_aware"]
    for name in ("inlined", "ranked", "times_1", "times_8"):
        for request in shipped.requests:
            assert subjects[name].policy.decide(request) == shipped.policy.decide(request)


def test_the_dataset_is_whole(tmp_path: Path) -> None:
    plan = make_overhead_plan({**TINY, "policies": "performance_aware"})
    ds = overhead_dataset(plan, harness.run(plan))
    assert ds.policy.values.tolist() == ["performance_aware", "default_policy", "all_compute"]  # baseline always timed
    assert ds.stream_seconds.dims == ("policy", "path", "request_count")
    assert ds.decision_seconds.dims == ds.added_seconds.dims == ("policy", "path", "combination")
    assert all("long_name" in ds[name].attrs for name in ds.variables)
    assert {f"host_{name}" for name in host()} <= set(ds.attrs)
    assert np.isfinite(ds.stream_seconds).all() and np.isfinite(ds.decision_seconds).all()
    assert (ds.stream_seconds_quartile[..., 0] <= ds.stream_seconds).all()
    service = ds.service_seconds.sel(policy="default_policy").values
    streams = ds.stream_service_seconds.sel(policy="default_policy").values
    assert streams[0] == pytest.approx(np.mean([service[trial % 6] for trial in range(400)]))
    expected = [sum(service[(trial * 20 + i) % 6] for i in range(20)) for trial in range(60)]
    assert streams[2] == pytest.approx(np.mean(expected))
    write_netcdf(ds, tmp_path / "a.nc")
    with kvsweep.open(tmp_path / "a.nc") as kept:
        assert summary(kept, "performance_aware", "scalar") == summary(ds, "performance_aware", "scalar")


def test_the_summary_is_arithmetic_on_the_dataset() -> None:
    plan = make_overhead_plan({**TINY, "paths": "scalar"})
    ds = overhead_dataset(plan, harness.run(plan))
    cost = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 15.0]) * 1e-6
    ds["decision_seconds"][0, 0], ds["added_seconds"][0, 0] = cost, cost - 0.5e-6
    ds["service_seconds"][0] = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0])
    ds["loop_seconds"][:] = 0.5e-6
    found = summary(ds, "performance_aware", "scalar")
    assert found["cost_us"] == pytest.approx(
        {"mean": 5.0, "median": 3.5, "p95": 12.5, "min": 1.0, "max": 15.0, "stdev": np.std(cost) * 1e6}
    )
    assert found["added_us"]["mean"] == pytest.approx(4.5) and found["added_us"]["max"] == pytest.approx(14.5)
    assert found["times_baseline"] == pytest.approx(5.5)
    assert found["percent_of_request_time"] == pytest.approx(100e-6 * (0.5 + 1.5 + 2.5 + 1.75 + 2.25 + 7.25) / 6)
    assert sum(mode["combinations"] for mode in found["by_decision_mode"].values()) == 6
    assert found["decisions_timed"] == 6 * 5 * 3


def test_a_policy_numba_refuses_is_timed_in_python_only(tmp_path: Path) -> None:
    body = 'return float(str(ctx.hit_blocks * 0.5)), {"halved": "halved"}["halved"]'
    path = written(tmp_path, SOURCE.replace('return ctx.hit_blocks / 2, "halved"', body))
    plan = make_overhead_plan({**TINY, "policy_files": [path]})
    ds = overhead_dataset(plan, harness.run(plan))
    cost = ds.decision_seconds.sel(policy="half")
    assert np.isfinite(cost.sel(path="scalar")).all() and np.isnan(cost.sel(path=["jit_call", "jit_loop"])).all()
    assert "timed on the scalar path only: policy half" in ds.attrs["kvsweep_warnings"]
    assert np.isnan(record(ds)["summary"]["jit_loop"]["half"]["cost_us"]["mean"])
    assert np.isfinite(ds.decision_seconds.drop_sel(policy="half")).all()


def test_a_policy_that_fails_on_the_pool_is_left_out_and_a_baseline_must_not(tmp_path: Path) -> None:
    path = written(tmp_path, SOURCE.replace("ctx.hit_blocks / 2", "1 / 0"))
    plan = make_overhead_plan({**TINY, "policy_files": [path]})
    assert "half" not in [subject.policy.name for subject in plan.subjects]
    assert "policy half" in plan.problems[0]
    with pytest.raises(PolicyError, match="baseline_policies: half cannot be timed"):
        make_overhead_plan({**TINY, "policy_files": [path], "baseline_policies": "half"})


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("paths", "scalar,jit", "choose from scalar, jit_call, jit_loop"),
        ("paths", "", "is not a name"),
        ("baseline_policies", "nobody", "choose from"),
        ("policies", "nobody", "choose from"),
        ("pool_size", 0, "allowed"),
        ("pool_size", 2.5, "allowed"),
        ("seed", -1, "allowed"),
        ("max_requests", 0, "allowed"),
        ("request_counts", "0,1", "allowed"),
        ("request_counts", "1,1", "twice"),
        ("request_counts", "2000000", "is more than max_requests"),
        ("combination_reps", 0, "allowed"),
        ("combination_rounds", 0, "allowed"),
        ("warmup_decisions", -1, "allowed"),
        ("stack", "h200,a5000", "allowed: one"),
        ("gpu", "A1000", "did you mean"),
    ],
)
def test_bad_options_are_refused_by_name(option: str, value: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"^{option}: ") as caught:
        make_overhead_plan({**TINY, option: value})
    assert said in str(caught.value)
