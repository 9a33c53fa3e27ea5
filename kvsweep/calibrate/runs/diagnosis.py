"""Which component of a prediction is off: an engine's time series against those of its replay, at equal states.

The two runs drift apart, so that no series is compared at equal times. Each component is judged by a relation that
holds whatever the others do: the time of a step at the running requests and their tokens, KV usage at the tokens held,
what is free and what a step takes while requests wait. Preempted requests follow from all of these, and count only if
none of them is off. The same estimate is made of the replay, and what is said is the difference of the two: what the
sampling of a series distorts is in both. Steps full of prompt tokens are not timed: an engine's series count prompts
whole, with their first token, computed or found in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsweep.calibrate.runs.measured import Floats
from kvsweep.calibrate.runs.replay import Replay, engine_series
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.steptime import StepTimes, step_picoseconds

FEW_REQUESTS = 4.0
"""Ticks with fewer running requests say little of a step: a tick holds a whole number of steps."""
FEW_TICKS = 4
"""Estimates from fewer ticks are not made."""
SIGMAS = 3.0
"""A difference counts from this many standard errors of the two estimates on."""
LEAST = {
    "step time": 0.02, "cache": 0.03, "admission": 0.015, "prompt tokens": 0.25, "preemption": 0.25
}  # fmt: skip
"""... and from this size on [1]; `admission` is the share of KV in use, `prompt tokens` those of a step."""
STEADY = 0.1
"""Share of the running requests that may come and go in a tick whose steps are compared."""
MOST = 0.75
"""Of the prompt tokens a step takes, the quantile that is compared: other limits than the budget take fewer."""
ROOM = 0.7
"""KV counts as free below this usage [1]."""
SOME = 0.5
"""Fewer preempted requests, on the mean, are ticks out of step."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one relation says of a component: the two estimates, and whether their difference counts."""

    component: str
    statement: str
    measured: float
    predicted: float
    counts: bool
    after: tuple[str, ...] = ()
    """Components that make such a difference themselves: where one of them is off, this says nothing."""


class Seen(NamedTuple):
    """A run as its engine shows it: series, and the requests' own times."""

    series: Mapping[str, Floats]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    first_token: Floats
    finish: Floats


class Estimate(NamedTuple):
    """A mean with its standard error, and of how many ticks."""

    mean: float
    error: float
    ticks: int


def diagnose(replay: Replay) -> dict[str, Any]:
    """Return the components whose evidence counts, `named`, and every statement; for a run with time series."""
    evidence = gathered(replay)
    named: list[str] = []
    for each in evidence:
        if each.counts and each.component not in named and not set(each.after) & set(named):
            named.append(each.component)
    return {
        "named": named,
        "evidence": [
            {"component": each.component, "statement": each.statement, "measured": each.measured,
             "predicted": each.predicted, "counts": each.counts}
            for each in evidence
        ],
    }  # fmt: skip


def gathered(replay: Replay) -> list[Evidence]:
    """Return the evidence there is of each component."""
    both = as_seen(replay)
    steps = [steps_of(seen, replay.times) for seen in both]
    found = [_step_time(*(_quantile([step.seconds / step.modelled for step in each]) for each in steps))]
    recorded = bool(both[0].series["kv_cache_pct"].any())
    if recorded:
        found.append(_usage(*(blocks_ratio(seen, replay.limits.block_tokens) for seen in both)))
    found.append(_reuse(replay))
    if recorded:
        most = replay.limits.max_sequences
        found.append(_waiting(*(usage_while_waiting(seen, most) for seen in both)))
        found.append(_budget(*(prompt_tokens_a_step(seen, most) for seen in both)))
    found.append(_preempted(*(_mean(waiting_anew(seen)) for seen in both)))
    return [each for each in found if each is not None]


def step_seconds_apart(replay: Replay) -> float:
    """Return by how much a step is longer than predicted at equal requests and tokens [s], 0 where none can be seen."""
    measured, predicted = (
        [step.seconds - step.modelled for step in steps_of(seen, replay.times)] for seen in as_seen(replay)
    )
    return float(np.median(measured or [0.0]) - np.median(predicted or [0.0]))


def as_seen(replay: Replay) -> tuple[Seen, Seen]:
    """Return the run as measured and as predicted, at the times of the measured series at which neither had ended."""
    run = replay.run
    inside = run.series["t"] < min(run.finish.max(), replay.finish.max())
    at = run.series["t"][inside]
    measured = Seen(
        {name: values[inside] for name, values in run.series.items()}, run.prompt_tokens, run.output_tokens,
        run.first_token, run.finish,
    )  # fmt: skip
    series = engine_series(replay.served, replay.limits, run.prompt_tokens, at)
    predicted = Seen(series, run.prompt_tokens, run.output_tokens, replay.first_token, replay.finish)
    return measured, predicted


def running_requests(seen: Seen, tick: int) -> NDArray[np.int64]:
    """Return the requests that decode at a tick: of those with a first token the earliest, the rest were preempted."""
    at = seen.series["t"][tick]
    alive = np.flatnonzero((seen.first_token <= at) & (at < seen.finish))
    order = np.argsort(seen.first_token[alive], kind="stable")
    return alive[order][: int(seen.series["running"][tick])]


def tokens_held(seen: Seen, requests: NDArray[np.int64], at: float) -> Floats:
    """Return the tokens of requests at a time, their answers growing evenly."""
    first, finish = seen.first_token[requests], seen.finish[requests]
    share = (at - first) / np.maximum(finish - first, 1e-9)
    return np.asarray(seen.prompt_tokens[requests] + share * (seen.output_tokens[requests] - 1))


def waiting_anew(seen: Seen) -> Floats:
    """Return at each tick the requests that had a first token, are not finished and do not run: those preempted."""
    at = seen.series["t"]
    alive = np.array([((seen.first_token <= now) & (now < seen.finish)).sum() for now in at.tolist()])
    return np.asarray(np.maximum(alive - seen.series["running"], 0.0))


def _steady(seen: Seen) -> NDArray[np.int64]:
    """Return the ticks before which no prompt ran, not anew either, and the running requests hardly changed."""
    running, away = seen.series["running"], waiting_anew(seen)
    steady = np.abs(np.diff(running, prepend=running[:1])) <= STEADY * running
    calm = (seen.series["prompt_throughput"] == 0) & (seen.series["gen_throughput"] > 0)
    back = np.diff(away, prepend=away[:1]) != 0.0
    found = steady & calm & ~back & (running >= FEW_REQUESTS)
    found[:1] = False
    return np.flatnonzero(found)


class Step(NamedTuple):
    """The mean step of a tick [s], and what the profile gives for its requests and their tokens."""

    seconds: float
    modelled: float


def steps_of(seen: Seen, times: StepTimes) -> list[Step]:
    """Return the mean steps of ticks in which decodes alone ran."""
    series = seen.series
    found = []
    for tick in _steady(seen).tolist():
        requests = running_requests(seen, tick)
        if len(requests) < FEW_REQUESTS:
            continue
        running = (series["running"][tick] + series["running"][tick - 1]) / 2.0
        held = tokens_held(seen, requests, (series["t"][tick] + series["t"][tick - 1]) / 2.0)
        step = np.zeros(c.N_STEP, np.int64)
        step[[c.TOKENS, c.DECODES, c.ROWS]] = round(running)
        step[c.CONTEXT], step[c.LONGEST] = round(held.mean() * round(running)), round(held.max())
        predicted = step_picoseconds(times, times.graphs, step) * 1e-12
        found.append(Step(running / series["gen_throughput"][tick], predicted))
    return found


def blocks_ratio(seen: Seen, block_tokens: int) -> Estimate:
    """Return the KV usage over the blocks that running requests hold, shared ones counted for each [1/block]."""
    ratios = []
    for tick in range(len(seen.series["t"])):
        requests = running_requests(seen, tick)
        if len(requests) < FEW_REQUESTS or len(requests) < seen.series["running"][tick]:
            continue
        held = np.ceil(tokens_held(seen, requests, seen.series["t"][tick]) / block_tokens).sum()
        ratios.append(seen.series["kv_cache_pct"][tick] / 100.0 / held)
    return _quantile(ratios)


def usage_while_waiting(seen: Seen, max_sequences: int) -> Estimate:
    """Return the KV usage [1] at which requests wait, though more of them could run."""
    series = seen.series
    full = (series["waiting"] > 0) & (series["running"] < max_sequences) & (series["prompt_throughput"] == 0)
    return _mean(series["kv_cache_pct"][full] / 100.0)


def prompt_tokens_a_step(seen: Seen, max_sequences: int) -> Estimate:
    """Return the prompt tokens of a step while requests wait, more could run and KV is free: the budget limits them.

    How many steps a tick has follows from its tokens and the requests that decode.
    """
    series = seen.series
    busy = (series["waiting"] > 0) & (series["kv_cache_pct"] < 100.0 * ROOM) & (series["running"] < max_sequences)
    busy &= (series["prompt_throughput"] > 0) & (series["gen_throughput"] > 0)
    found = []
    for tick in np.flatnonzero(busy).tolist():
        before = series["t"][tick - 1] if tick else 0.0
        middle = (series["t"][tick] + before) / 2.0
        decoding = float(((seen.first_token <= middle) & (middle < seen.finish)).sum())
        if decoding >= FEW_REQUESTS:
            found.append(series["prompt_throughput"][tick] * decoding / series["gen_throughput"][tick])
    return _quantile(found, MOST)


def _quantile(values: list[float], level: float = 0.5) -> Estimate:
    """Return a quantile; its error, that of the median, from the spread of the middle half as if normal."""
    if len(values) < FEW_TICKS:
        return Estimate(np.nan, np.nan, len(values))
    low, middle, high = np.quantile(values, (0.25, level, 0.75))
    return Estimate(float(middle), float((high - low) / 1.349 * 1.253 / np.sqrt(len(values))), len(values))


def _mean(values: Floats) -> Estimate:
    if len(values) < FEW_TICKS:
        return Estimate(np.nan, np.nan, len(values))
    return Estimate(float(values.mean()), float(values.std() / np.sqrt(len(values))), len(values))


def _counts(a: Estimate, b: Estimate, least: float, relative: bool = True) -> bool:
    """Return whether two estimates differ by more than their errors and `least`."""
    scale = abs(b.mean) if relative else 1.0
    apart = abs(a.mean - b.mean)
    return bool(scale > 0.0 and apart > least * scale and apart > SIGMAS * np.hypot(a.error, b.error))


def _longer(a: Estimate, b: Estimate) -> str:
    apart = a.mean / b.mean - 1.0
    return f"{abs(apart):.1%} {'longer' if apart >= 0.0 else 'shorter'}"


def _step_time(a: Estimate, b: Estimate) -> Evidence | None:
    if a.ticks < FEW_TICKS:
        return None
    seen = f"{a.ticks} ticks without a prompt"
    enough = b.ticks >= FEW_TICKS
    if not enough:  # the profile gives the steps themselves, and nothing what sampling distorts
        b, seen = Estimate(1.0, 0.0, 0), f"{seen}, too few in the replay to judge by"
    text = f"at equal running requests and tokens, decode steps are {_longer(a, b)} than predicted ({seen})"
    return Evidence("step time", text, a.mean, b.mean, enough and _counts(a, b, LEAST["step time"]))


def _usage(a: Estimate, b: Estimate) -> Evidence | None:
    if not (a.ticks >= FEW_TICKS and b.ticks >= FEW_TICKS):
        return None
    text = (
        f"at equal tokens of running requests, KV usage differs by {a.mean / b.mean - 1.0:+.1%} ({a.ticks} ticks): "
        "more is fewer blocks, or fewer of them shared"
    )
    return Evidence("cache", text, a.mean, b.mean, _counts(a, b, LEAST["cache"]))


def _waiting(a: Estimate, b: Estimate) -> Evidence | None:
    if not (a.ticks >= FEW_TICKS and b.ticks >= FEW_TICKS):
        return None
    text = f"requests wait at {a.mean:.1%} of KV in use, predicted {b.mean:.1%} ({a.ticks} ticks)"
    return Evidence("admission", text, a.mean, b.mean, _counts(a, b, LEAST["admission"], relative=False))


def _budget(a: Estimate, b: Estimate) -> Evidence | None:
    if not (a.ticks >= FEW_TICKS and b.ticks >= FEW_TICKS):
        return None
    text = (
        f"while requests wait and KV is free, a step takes {a.mean:.0f} prompt tokens, predicted {b.mean:.0f} "
        f"({a.ticks} ticks)"
    )
    return Evidence("admission", text, a.mean, b.mean, _counts(a, b, LEAST["prompt tokens"]))


def _reuse(replay: Replay) -> Evidence | None:
    """Return what the tokens found in the cache say, where the run counted them."""
    run = replay.run
    if run.hit_tokens is None:
        return None
    measured = float(run.hit_tokens.sum() / run.prompt_tokens.sum())
    predicted = float(replay.served.request[:, c.HIT].sum() / run.prompt_tokens.sum())
    text = f"prompts find {measured:.1%} of their tokens in the cache, predicted {predicted:.1%}"
    return Evidence("cache", text, measured, predicted, abs(measured - predicted) > LEAST["cache"])


def _preempted(a: Estimate, b: Estimate) -> Evidence | None:
    if max(a.mean, b.mean) < SOME:
        return None
    text = f"{a.mean:.1f} preempted requests wait on the mean, predicted {b.mean:.1f}"
    least = LEAST["preemption"] * max(a.mean, b.mean)
    counts = _counts(a, b, max(least, SOME), relative=False)
    return Evidence("preemption", text, a.mean, b.mean, counts, after=("step time", "cache", "admission"))
