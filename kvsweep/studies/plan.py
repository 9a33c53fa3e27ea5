"""How many workers a trace needs: the fewest that meet an SLO, found by simulation, and what one less would fail by.

The search starts from the sizing formula n_P = λ·E[C]/ρ*, n_D = λ·E[out]·t_step(B)/(B·ρ*), brackets by doubling,
bisects each role with plenty of the other, and then tries totals upwards. That is exact where attainment grows with
workers. It need not: more workers share less of a prefix. So all smaller sizes are simulated where they are few, and
where a pair of simulations shows a fall.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvsweep.cluster.inputs.config import ClusterConfig, config_mapping, parse_config
from kvsweep.cluster.inputs.service_profile import Profile, decode_coefficients
from kvsweep.cluster.outcome.dataset import told
from kvsweep.cluster.outcome.summary import RESOURCES
from kvsweep.cluster.shared.segments import remembering
from kvsweep.cluster.simulation.run import finish
from kvsweep.errors import InputError
from kvsweep.studies.axes import ROLES
from kvsweep.studies.metrics import NO_CAUSE, STATISTICS, Figures, labels_of, measure
from kvsweep.studies.parallel import in_threads
from kvsweep.trace.model import Trace

UTILISATION = 0.7
"""Target utilisation ρ* of the formula [1], until the percentile model inverts it from the SLO."""
CERTIFIED = 64
"""Most sizes of a smaller total that are all simulated, to be certain."""
SLACK = 1e-12
"""Difference of attainments that is none [1]."""
OBJECTIVE_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}

Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """One simulated size: attainment of the whole SLO and of each limit [1], and what slow requests waited for."""

    counts: Counts
    attainment: float
    by_objective: Mapping[str, float]
    p95: Mapping[str, float]
    waited_for: str
    utilization: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer: workers by role, None where not even the most allowed are enough, and why one less is too few."""

    roles: tuple[str, ...]
    found: Tried | None
    started: Counts
    simulations: int
    monotone: bool
    certain: bool
    """Whether every smaller total was simulated."""
    binding: tuple[str, ...]
    best: Tried

    def record(self) -> dict[str, Any]:
        """Return the plan as JSON says it."""
        shown = self.found or self.best
        return {
            "met": self.found is not None,
            "workers": dict(zip(self.roles, shown.counts, strict=True)),
            "total_workers": sum(shown.counts),
            "attainment": shown.attainment,
            "attainment_by_objective": dict(shown.by_objective),
            "p95_seconds": dict(shown.p95),
            "utilization": dict(shown.utilization),
            "binding": list(self.binding),
            "sizing_formula": dict(zip(self.roles, self.started, strict=True)),
            "simulations": self.simulations,
            "monotone": self.monotone,
            "every_smaller_size_simulated": self.certain,
        }


@dataclass(slots=True)
class Search:
    """Simulations of one trace at other sizes of a cluster, each run once."""

    trace: Trace
    values: dict[str, Any]
    profile: Profile
    limits: Mapping[str, float]
    attainment: float
    most: int
    threads: int | None = None
    progress: Callable[[int], None] | None = None
    policy_files: tuple[Any, ...] = ()
    tried: dict[Counts, Tried] = field(default_factory=dict)

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles of the cluster file, whose counts are sought."""
        present = {str(group["role"]) for group in self.values["workers"]}
        return tuple(role for role in ROLES if role in present)

    def config(self, counts: Counts) -> ClusterConfig:
        """Return the cluster of other counts by role."""
        of_role = dict(zip(self.roles, counts, strict=True))
        groups = [{**group, "count": of_role[str(group["role"])]} for group in self.values["workers"]]
        return parse_config({**self.values, "workers": groups}, "cluster")

    def run(self, sizes: Sequence[Counts]) -> None:
        """Simulate the sizes that have not been, in parallel."""
        new = [counts for counts in dict.fromkeys(sizes) if counts not in self.tried]
        for tried in in_threads(self._one, new, self.threads):
            self.tried[tried.counts] = tried
            if self.progress is not None:
                self.progress(len(self.tried))

    def meets(self, counts: Counts) -> bool:
        """Return whether the cluster of these counts meets the SLO often enough."""
        self.run([counts])
        return self.tried[counts].attainment >= self.attainment

    def _one(self, counts: Counts) -> Tried:
        run = finish(self.trace, self.config(counts), self.profile, policy_files=self.policy_files, compile=True)
        found = told(run)
        slos = {"all": self.limits, **{name: {name: limit} for name, limit in self.limits.items()}}
        figures = measure(found, slos)
        causes = [NO_CAUSE, *labels_of(found)["cause"]]
        shares = figures["slo_attainment"]
        at = STATISTICS.index("p95")
        return Tried(
            counts,
            shares[0],
            dict(zip(self.limits, shares[1:], strict=True)),
            {name: figures[name][at] for name in self.limits},
            causes[int(figures["bottleneck"])],
            _utilization(figures),
        )


def _utilization(figures: Figures) -> dict[str, float]:
    sides = ("prefill", "decode")
    return {side: figures[f"{side}_utilization"] for side in sides if not math.isnan(figures[f"{side}_utilization"])}


def plan(search: Search) -> Plan:
    """Return the fewest workers that meet the SLO of `search`, at most `search.most` of a role."""
    _check(search)
    started = sizing(search.trace, search.config(tuple(1 for _ in search.roles)), search.profile)
    started = tuple(min(search.most, count) for count in started[: len(search.roles)])
    with remembering(2):
        high = _bracket(search, started)
        if high is None:
            best = max(search.tried.values(), key=lambda each: (each.attainment, sum(each.counts)))
            return Plan(search.roles, None, started, len(search.tried), True, False, _binding_at(search, best), best)
        plenty = tuple(search.most for _ in high)
        low = tuple(
            min(_least(search, role, high, high), _least(search, role, high, plenty)) for role in range(len(high))
        )
        found = _first(search, low, high)
        monotone = _is_monotone(search)
        certain = not monotone or _n_smaller(found) <= CERTIFIED
        if certain:
            found = _first(search, tuple(1 for _ in low), found)
            monotone = _is_monotone(search)
        binding = _binding(search, found)
    tried = search.tried[found]
    return Plan(search.roles, tried, started, len(search.tried), monotone, certain, binding, tried)


def _check(search: Search) -> None:
    if not search.limits:
        raise InputError("--slo: missing; allowed: ttft=, tpot=, e2e= and a time, or slo in the cluster file")
    if not 0.0 < search.attainment <= 1.0:
        raise InputError(f"--attainment: {search.attainment:g}; allowed: more than 0, at most 1")
    groups = [str(group["role"]) for group in search.values["workers"]]
    if len(groups) > len(set(groups)):
        raise InputError("workers: several groups of a role; allowed for a plan: one of each, whose count is sought")


def check_roles(config: ClusterConfig) -> None:
    """Refuse workers whose number cannot be sought."""
    if config.vllm:
        raise InputError(
            "workers: role: vllm: no plan is made of these; allowed: prefill, decode, colocated (kvsweep cluster sweep "
            "has the axis n_vllm)"
        )


def sizing(trace: Trace, config: ClusterConfig, profile: Profile) -> Counts:
    """Return the workers of the sizing formula, without any reuse: prefill, decode."""
    rate = len(trace) / trace.duration if trace.duration else 1.0
    tokens = trace.input_tokens.astype(float)
    model = profile.prefill
    compute = model.token_seconds * tokens + model.token_pair_seconds * tokens * tokens / 2.0
    chunk = getattr(config.prefill[0], "chunk_tokens", 4096) if config.prefill else 4096
    compute += model.fixed_seconds * tokens / chunk
    n_prefill = rate * float(compute.mean()) / UTILISATION
    group = config.decode[0] if config.decode else None
    if group is None:
        return (max(1, math.ceil(n_prefill)),)
    held = float((tokens + trace.output_tokens).mean())
    batch = max(1, min(group.max_running, int(group.device_tokens // held)))
    times = decode_coefficients(profile, group.graph_buckets, batch)[batch]
    step = (float(times[0]) + float(times[1]) * batch * held) * 1e-15
    n_decode = rate * float(trace.output_tokens.mean()) * step / (batch * UTILISATION)
    return max(1, math.ceil(n_prefill)), max(1, math.ceil(n_decode))


def _bracket(search: Search, start: Counts) -> Counts | None:
    """Return counts that meet the SLO, from `start` by doubling; None where not even the most do."""
    counts = start
    while not search.meets(counts):
        if all(count >= search.most for count in counts):
            return None
        counts = tuple(min(search.most, 2 * count) for count in counts)
    return counts


def _least(search: Search, role: int, high: Counts, others: Counts) -> int:
    """Return the least count of one role, up to that of `high`, that meets the SLO with `others`, by bisection."""

    def at(count: int) -> Counts:
        return (*others[:role], count, *others[role + 1 :])

    low, top = 0, high[role]
    while top - low > 1:
        middle = (low + top) // 2
        low, top = (low, middle) if search.meets(at(middle)) else (middle, top)
    return top


def _first(search: Search, low: Counts, high: Counts) -> Counts:
    """Return the counts of the least total from `low` up that meet the SLO; of equals those that meet it most often."""
    for total in range(sum(low), sum(high) + 1):
        ranges = (range(least, total + 1) for least in low)
        sizes = [counts for counts in itertools.product(*ranges) if sum(counts) == total and max(counts) <= search.most]
        search.run(sizes)
        good = [counts for counts in sizes if search.meets(counts)]
        if good:
            return max(good, key=lambda counts: (search.tried[counts].attainment, counts))
    return high


def _n_smaller(found: Counts) -> int:
    """Return the number of sizes with fewer workers in all."""
    return math.comb(sum(found) - 1, len(found))


def _is_monotone(search: Search) -> bool:
    """Return whether no simulated size is met less often than one with fewer workers of each role."""
    for a, b in itertools.permutations(search.tried.values(), 2):
        fewer = all(x <= y for x, y in zip(a.counts, b.counts, strict=True))
        if fewer and a.attainment > b.attainment + SLACK and a.attainment >= search.attainment > b.attainment:
            return False
    return True


def _binding(search: Search, found: Counts) -> tuple[str, ...]:
    """Return why one worker less of each role would be too few."""
    lines = []
    for role, name in enumerate(search.roles):
        less = (*found[:role], found[role] - 1, *found[role + 1 :])
        if less[role] < 1:
            lines.append(f"{name}: there is one, the least there can be")
            continue
        search.run([less])
        if search.tried[less].attainment >= search.attainment:
            lines.append(f"{name}: one less would do by itself, but not with any fewer in all")
        else:
            lines.append(f"one {name} worker less: {_why(search, search.tried[less])}")
    return tuple(lines)


def _binding_at(search: Search, tried: Tried) -> tuple[str, ...]:
    size = ", ".join(f"{count} {role}" for role, count in zip(search.roles, tried.counts, strict=True))
    return (f"even {size} workers: {_why(search, tried)}",)


def _why(search: Search, tried: Tried) -> str:
    worst = min(search.limits, key=lambda name: tried.by_objective[name])
    limit, p95 = search.limits[worst], tried.p95[worst]
    waits = RESOURCES.get(tried.waited_for, tried.waited_for)
    return (
        f"{OBJECTIVE_NAMES[worst]} binds: {tried.by_objective[worst]:.2%} within {limit:g} s (P95 {p95:.4g} s), all "
        f"limits {tried.attainment:.2%}; slow requests wait for {waits}"
    )


def make_search(
    trace: Trace, config: ClusterConfig, profile: Profile, limits: Mapping[str, float], attainment: float,
    most: int = 64, **options: Any,
) -> Search:  # fmt: skip
    """Return the search over sizes of `config` for a trace, within at most `most` workers of a role."""
    check_roles(config)
    return Search(trace, config_mapping(config), profile, limits, attainment, most, **options)
