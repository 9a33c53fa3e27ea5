"""A run of the overhead harness before it starts: every input checked, every decision made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvsweep.costs.deployment import Deployment
from kvsweep.costs.inputs import WORKLOAD_FIELDS
from kvsweep.errors import InputError, PolicyError, unknown_name
from kvsweep.grid.axes import key_axis, number_axis
from kvsweep.grid.plan import Plan, notes
from kvsweep.grid.simulate import simulation_plan
from kvsweep.overhead.inputs import DEFAULTS, NUMBERS, PATHS, stream_lengths, trials
from kvsweep.overhead.pool import Workload, contexts, draw_pool
from kvsweep.policies.context import Context
from kvsweep.policies.outcome import outcome
from kvsweep.policies.registry import Policy, PolicySet, load_policies

OWN = (*NUMBERS, "baseline_policies", "paths")
"""Options of the harness itself; the others choose hardware, model, placement and policies."""

LINEAR_MODEL = {"cost_model": "linear", "path_model": "summed", "placement": "disk"}
"""Models that decisions are timed with, whatever the machine."""

SECONDS_PER_DECISION = 1e-6
"""About what a decision takes [s], the mean of the built-in policies over the three paths."""


@dataclass(frozen=True)
class Subject:
    """A policy with the requests it decides and what it decides, in the order of the pool."""

    policy: Policy
    requests: Sequence[Context]
    modes: Sequence[str]
    service_seconds: Sequence[float]
    """Modelled time [s] of each request."""


@dataclass(frozen=True)
class OverheadPlan:
    """A checked run. `config` holds its inputs as plain values.

    `problems` has a line for each policy left out, `notes` what else a reader of the results must know.
    """

    subjects: Sequence[Subject]
    baseline: tuple[str, ...]
    paths: tuple[str, ...]
    pool: Sequence[Workload]
    request_counts: tuple[int, ...]
    seed: int
    warmup_decisions: int
    combination_reps: int
    combination_rounds: int
    deployment: Deployment
    catalog_sha256: str
    config: Mapping[str, Any]
    problems: Sequence[str]
    notes: Sequence[str]

    @property
    def decisions(self) -> int:
        """Decisions timed for each policy on each path."""
        streams = sum(trials(count) * count for count in self.request_counts)
        return streams + self.combination_rounds * len(self.pool) * self.combination_reps

    @property
    def seconds(self) -> float:
        """About how long [s] the run takes."""
        one = self.decisions + self.warmup_decisions
        return SECONDS_PER_DECISION * one * len(self.subjects) * len(self.paths)


def make_overhead_plan(options: Mapping[str, Any], spell: Mapping[str, str] | None = None) -> OverheadPlan:
    """Return the plan of a run described by `options`: hardware, model, placement and policies, and the harness's own.

    `spell` says how messages call an option. Raises InputError for the first option that cannot be used; a policy
    that fails on a request of the pool is left out and named in the notes. The policies of the baseline are timed
    whether chosen or not.
    """
    names = {name: (spell or {}).get(name, name) for name in (*OWN, "policies")}
    settings = {**DEFAULTS, **{name: value for name, value in options.items() if name in OWN}}
    numbers = {name: int(NUMBERS[name].check(settings[name], names[name])) for name in NUMBERS if name in DEFAULTS}
    counts = _request_counts(settings, numbers["max_requests"], names)
    paths = _paths(settings["paths"], names["paths"])
    pool = draw_pool(numbers["pool_size"], numbers["seed"])
    of_model = {name: value for name, value in options.items() if name not in names}
    model = simulation_plan(
        {**LINEAR_MODEL, **of_model, "total_blocks": max(work.total_blocks for work in pool)}, spell
    )
    baseline = key_axis(settings["baseline_policies"], names["baseline_policies"])
    # Chosen ones may be of other models, which the plan does not evaluate unasked.
    known = load_policies(model.policy_files)
    known.select(baseline, names["baseline_policies"])
    wanted = key_axis(options["policies"], names["policies"]) if "policies" in options else list(model.policies)
    timed = known.select([*known.select(wanted, names["policies"]), *baseline], names["policies"])
    subjects, problems = _subjects(timed, pool, model)
    for lost in set(baseline) - {subject.policy.name for subject in subjects}:
        raise PolicyError(f"{names['baseline_policies']}: {lost} cannot be timed: {'; '.join(problems)}")
    kept = {name: value for name, value in model.config.items() if name not in WORKLOAD_FIELDS}
    used = {**settings, **numbers, "request_counts": counts, "baseline_policies": baseline, "paths": paths}
    return OverheadPlan(
        subjects=subjects, baseline=tuple(baseline), paths=tuple(paths), pool=pool, request_counts=tuple(counts),
        seed=numbers["seed"], warmup_decisions=numbers["warmup_decisions"],
        combination_reps=numbers["combination_reps"], combination_rounds=numbers["combination_rounds"],
        deployment=model.deployments[0], catalog_sha256=model.catalog.sha256,
        config={**kept, "policies": [subject.policy.name for subject in subjects], **used},
        problems=(*model.policies.problems, *problems), notes=notes(model),
    )  # fmt: skip


def _request_counts(settings: Mapping[str, Any], longest: int, names: Mapping[str, str]) -> list[int]:
    """Return the stream lengths in ascending order, none above `longest`."""
    if "request_counts" not in settings:
        return stream_lengths(longest)
    what = names["request_counts"]
    given = sorted(int(count) for count in number_axis(settings["request_counts"], NUMBERS["request_counts"], what))
    if given[0] > longest:
        raise InputError(f"{what}: {given[0]} is more than {names['max_requests']} {longest}; allowed: 1 to {longest}")
    return [count for count in given if count <= longest]


def _paths(value: Any, what: str) -> list[str]:
    wanted = key_axis(value, what)
    for path in wanted:
        if path not in PATHS:
            raise unknown_name(what, path, PATHS)
    return [path for path in PATHS if path in wanted]


def _subjects(policies: PolicySet, pool: Sequence[Workload], model: Plan) -> tuple[list[Subject], list[str]]:
    """Return what each policy decides of the whole pool, and one line for each that fails."""
    vram, dram, disk = (float(share) for share in model.fractions()[0])
    subjects, problems = [], []
    for policy in policies.values():
        requests = contexts(pool, model.deployments[0].rates(), (vram, dram, disk), policy.recomputes)
        try:
            outcomes = [outcome(policy, request) for request in requests]
        except PolicyError as error:
            problems.append(f"left out: {error}")
        else:
            modes = [result.decision_mode for result in outcomes]
            subjects.append(Subject(policy, requests, modes, [result.total_time for result in outcomes]))
    return subjects, problems
