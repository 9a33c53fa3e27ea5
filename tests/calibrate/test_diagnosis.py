"""Which component is off: runs of the simulator itself with one mechanism changed, and no other named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from kvsweep.calibrate.runs.diagnosis import Seen, diagnose, step_seconds_apart, tokens_held
from kvsweep.calibrate.runs.measured import MeasuredRun
from kvsweep.calibrate.runs.replay import replay
from kvsweep.cluster.inputs.step_profile import StepProfile, step_times
from kvsweep.cluster.simulation.lone_worker import Arrival, Served, run
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm import schedule
from kvsweep.cluster.vllm.blocks import release
from kvsweep.cluster.vllm.limits import Limits
from kvsweep.cluster.vllm.state import Fleet
from tests.calibrate.planted_samples import GRAPHS, LIMITS, PROFILE, PROMPTS, Workload, planted, slower

BLOCKS = LIMITS.n_blocks
ROOMY = 8000
"""Blocks with which the tokens of a step, not KV, limit what is admitted."""


def named(measured: MeasuredRun) -> tuple[list[str], dict[str, str]]:
    """Return the components named, and the statements that count by component."""
    found = diagnose(replay(measured, PROFILE))
    return found["named"], {each["component"]: each["statement"] for each in found["evidence"] if each["counts"]}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_changed_names_nothing(seed: int) -> None:
    for measured in (planted(Workload(seed)), planted(Workload(seed, **PROMPTS), stated={"n_blocks": ROOMY})):
        found = diagnose(replay(measured, PROFILE))
        assert found["named"] == [] and found["evidence"]
        assert all(each["measured"] == pytest.approx(each["predicted"], rel=1e-9) for each in found["evidence"])


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("factor", "text"), [(1.1, "longer"), (0.9, "shorter")])
def test_slow_or_fast_steps(seed: int, factor: float, text: str) -> None:
    components, statements = named(planted(Workload(seed), slower(PROFILE, factor)))
    assert components == ["step time"]
    stated = float(statements["step time"].split("steps are ")[1].split("%")[0])
    assert text in statements["step time"] and abs(stated - abs(factor - 1.0) * 100) < 2.0


def test_a_constant_of_every_step_is_found_in_seconds() -> None:
    measured = planted(Workload(1), replace(PROFILE, overhead_seconds=2e-3))
    assert step_seconds_apart(replay(measured, PROFILE)) == pytest.approx(2e-3, rel=0.2)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fewer_blocks(seed: int) -> None:
    components, statements = named(planted(Workload(seed), n_blocks=BLOCKS * 9 // 10))
    assert components == ["cache"]
    stated = float(statements["cache"].split("differs by +")[1].split("%")[0])
    assert stated == pytest.approx(100 / 9, abs=1.5)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_prefix_cache_that_is_off(seed: int) -> None:
    components, statements = named(planted(Workload(seed), prefix_cache=False))
    assert components == ["cache"] and "fewer of them shared" in statements["cache"]


def test_hits_that_were_counted_speak_for_themselves() -> None:
    measured = planted(Workload(1), prefix_cache=False)
    measured = replace(measured, series={**measured.series, "kv_cache_pct": 0.0 * measured.series["t"]})
    measured = replace(measured, hit_tokens=np.zeros(len(measured), np.int64))
    components, statements = named(measured)
    assert components == ["cache"] and "prompts find 0.0% of their tokens in the cache" in statements["cache"]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("changed", [{"watermark_blocks": BLOCKS // 20}, {"max_sequences": 24}])
def test_who_is_admitted_late(seed: int, changed: dict[str, int]) -> None:
    components, statements = named(planted(Workload(seed), **changed))
    assert components == ["admission"] and "of KV in use, predicted" in statements["admission"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_smaller_token_budget(seed: int) -> None:
    measured = planted(Workload(seed, **PROMPTS), stated={"n_blocks": ROOMY}, token_budget=LIMITS.token_budget // 2)
    components, statements = named(measured)
    assert components == ["admission"] and "prompt tokens, predicted" in statements["admission"]


def at_the_back(f: Fleet, k: int, r: int) -> None:
    """Preempt a request as `schedule` does, and put it at the back of the waiting queue instead of the front."""
    release(f, k, r)
    row = f.state.request[r]
    row[c.COMPUTED], row[c.PREEMPTED_AT], row[c.WAITING], row[c.NEXT] = 0, f.run[k, c.NOW], 1, -1
    row[c.PREEMPTIONS] += 1
    if f.run[k, c.WAIT_TAIL] >= 0:
        f.state.request[f.run[k, c.WAIT_TAIL], c.NEXT] = r
    else:
        f.run[k, c.WAIT_HEAD] = r
    f.run[k, c.WAIT_TAIL] = r
    f.run[k, c.N_WAITING] += 1


@pytest.mark.parametrize("seed", [1, 2])
def test_preempted_requests_that_wait_longer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def uncompiled(requests: Sequence[Arrival], limits: Limits, profile: StepProfile) -> Served:
        return run(requests, limits, step_times(profile, GRAPHS), plain=True)

    load = Workload(seed, count=160)
    assert named(planted(load, runner=uncompiled))[0] == []
    with monkeypatch.context() as patch:
        patch.setattr(schedule, "_preempt", at_the_back)
        measured = planted(load, runner=uncompiled)
    components, statements = named(measured)
    assert components == ["preemption"] and "preempted requests wait on the mean" in statements["preemption"]


def test_a_run_too_short_to_say_anything_names_nothing() -> None:
    measured = planted(Workload(1, count=5), slower(PROFILE, 1.5))
    cut = {name: values[:3] for name, values in measured.series.items()}
    assert named(replace(measured, series=cut)) == ([], {})


def test_tokens_grow_evenly_between_the_first_and_the_last() -> None:
    seen = Seen({}, np.array([100, 50]), np.array([11, 1]), np.array([0.0, 1.0]), np.array([10.0, 1.0]))
    assert tokens_held(seen, np.array([0]), 5.0).tolist() == [105.0]
    assert tokens_held(seen, np.array([1]), 1.0).tolist() == [50.0]
