"""The summary of a sweep as `kvsweep sweep` prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kvsweep.cli.output import LONGEST_NAME, Column, print_table, shortened, to_csv, to_json, wrapped
from kvsweep.costs.inputs import SIMULATE_DEFAULTS
from kvsweep.grid.flags import world_line
from kvsweep.results.analysis.summary import Summary, summarize
from kvsweep.results.names import NAMES

if TYPE_CHECKING:
    import xarray as xr

    from kvsweep.grid.plan import Plan
    from kvsweep.policies.registry import Policy

MOST_NAMES = 6
"""Most points of an axis of names that are told one by one."""
MEANING = "the answer comes within the latency target while GPU and storage keep up with the request rate"


def print_summary(ds: xr.Dataset, plan: Plan, form: str) -> None:
    """Print how often each policy of a sweep or reduction meets the SLO, as ``table``, ``json`` or ``csv``."""
    summaries = summarize(ds)
    ratios = [float(ratio) for ratio in plan.axes["hit_ratio"]] if "hit_ratio" in plan.axes else []
    if form == "json":
        policies = {name: _record(summary) for name, summary in summaries.items()}
        world = world_line(plan.deployments)
        click.echo(to_json({"world": world, "points": plan.n_points, "policies": policies}))
    elif form == "csv":
        click.echo(to_csv(_rows(summaries, ratios)))
    else:
        _print_table(summaries, plan, ratios)


def _record(summary: Summary) -> dict[str, Any]:
    """Return the JSON of a policy: rates 0..1, by hit ratio in the order of that axis."""
    return {
        "success_rate": summary.success_rate,
        "success_rate_by_hit_ratio": summary.success_rate_by_hit_ratio,
        "sufficient_share": summary.sufficient_share,
        **summary.reductions,
    }


def _rows(summaries: Mapping[str, Summary], ratios: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the CSV: a policy overall (no hit ratio), then at each hit ratio."""
    for name, summary in summaries.items():
        overall = _record(summary)
        by_ratio = overall.pop("success_rate_by_hit_ratio") or ()
        yield {"policy": name, "hit_ratio": None, **overall}
        for ratio, rate in zip(ratios, by_ratio, strict=False):
            yield {"policy": name, "hit_ratio": ratio, "success_rate": rate}


def _print_table(summaries: Mapping[str, Summary], plan: Plan, ratios: Sequence[float]) -> None:
    click.echo(wrapped(f"World {world_line(plan.deployments)}.", 2))
    fits = list(dict.fromkeys(each.fit.line for each in plan.deployments if each.fit))
    for line in fits[:MOST_NAMES]:
        click.echo(wrapped(f"Fits {line}.", 2))
    if len(fits) > MOST_NAMES:
        click.echo(f"Fits of {len(fits) - MOST_NAMES} more deployments are not shown.")
    click.echo(f"{plan.n_points} points x {len(summaries)} policies, a point being one request on one deployment:")
    for name, points in plan.axes.items():
        default = name == "total_blocks" and name not in plan.given
        unasked = f"; the default (of simulate: {SIMULATE_DEFAULTS[name]:,})" if default else ""
        click.echo(f"  {name:<16}{_extent(points)}{_in_tokens(name, points, plan)}{unasked}")
    click.echo()
    told = told_names(plan.policies[name] for name in summaries)
    print_table(summaries.items(), [Column("policy", lambda item: told[item[0]]), *_columns(summaries, ratios)])
    click.echo()
    conclusions = _conclusions({told[name]: summary for name, summary in summaries.items()})
    for line in (*conclusions, *ids_line(plan.policies[name] for name in summaries)):
        click.echo(line)


def told_names(policies: Iterable[Policy]) -> dict[str, str]:
    """Return what tables call policies, by id: their labels, as pages and figures do, with the id beside equal ones."""
    told = {policy.name: shortened(policy.label, LONGEST_NAME) for policy in policies}
    several = Counter(told.values())
    return {name: label if several[label] == 1 else f"{label} ({name})" for name, label in told.items()}


def ids_line(policies: Iterable[Policy]) -> list[str]:
    """Return the line that says what files call `policies`, of those whose id their label does not tell."""
    ids = {name: label for name, label in told_names(policies).items() if label.lower() != name.replace("_", " ")}
    told = ", ".join(f"{label} is {name}" for name, label in ids.items())
    return [f"In files and options: {told}."] if told else []


def _extent(points: Any) -> str:
    """Return a range of numbers, but names one by one: they have no order, so that nothing lies between two."""
    if isinstance(points[0], str):
        return ", ".join(points[:MOST_NAMES]) + (f", … ({len(points)})" if len(points) > MOST_NAMES else "")
    shown = [_number(point) for point in (points[0], points[-1])]
    return shown[0] if len(points) == 1 else f"{shown[0]} to {shown[1]} ({len(points)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 and value == int(value) else f"{value:g}"


def _in_tokens(name: str, points: Any, plan: Plan) -> str:
    """Return what an axis of blocks is in tokens, where a block is of one size."""
    sizes = {deployment.tokens_per_block for deployment in plan.deployments}
    if name not in ("total_blocks", "miss_blocks") or len(sizes) > 1:
        return ""
    (size,) = sizes
    low, high = (f"{size * point:,.0f}" for point in (points[0], points[-1]))
    return f" blocks of {size:g} tokens: {low if len(points) == 1 else f'{low} to {high}'} tokens"


def _columns(summaries: Mapping[str, Summary], ratios: Sequence[float]) -> Iterator[Column]:
    """Yield the columns there is something to show in."""
    first = next(iter(summaries.values()))
    if first.success_rate is not None:
        yield Column("meets SLO [%]", lambda item: 100.0 * item[1].success_rate)
    if first.success_rate_by_hit_ratio is not None and len(ratios) > 1:
        yield Column("at best", lambda item: _extreme(item[1].success_rate_by_hit_ratio, ratios, max))
        yield Column("at worst", lambda item: _extreme(item[1].success_rate_by_hit_ratio, ratios, min))
    if first.sufficient_share is not None:
        yield Column("simplest that does [%]", lambda item: 100.0 * item[1].sufficient_share)
    for name in first.reductions:
        header = f"{name} [{NAMES[name].units}]"
        yield Column(header, lambda item, name=name: item[1].reductions[name])  # type: ignore[misc]


def _extreme(rates: Sequence[float], ratios: Sequence[float], choose: Any) -> str:
    """Return the best or worst success rate and the first hit ratio it is reached at."""
    rate = choose(rates)
    return f"{100.0 * rate:.3g} % (hit ratio {ratios[rates.index(rate)]:g})"


def _conclusions(summaries: Mapping[str, Summary]) -> Iterator[str]:
    """Yield in plain words which policy passes most, and how often none does."""
    rates = {name: summary.success_rate for name, summary in summaries.items() if summary.success_rate is not None}
    best = max(rates.values(), default=None)
    if best is not None:
        if best == 0.0:
            yield "No policy meets the SLO at any point:"
            yield f"nowhere {MEANING.replace('comes', 'would come', 1)}."
            return
        names = [name for name, rate in rates.items() if rate == best]
        verb = "meets" if len(names) == 1 else "meet"
        often = "most often" if len(rates) > len(names) else "equally often"
        yield f"{' and '.join(names)} {verb} the SLO {often}, at {_share(best)} of the points:"
        yield f"there {MEANING}."
    shares = [summary.sufficient_share for summary in summaries.values() if summary.sufficient_share is not None]
    if shares:
        left = 1.0 - sum(shares)
        if left < 1e-12:  # what rounding leaves
            yield "At every point at least one policy does."
        else:
            yield f"At {_share(left)} of the points no policy does."


def _share(part: float) -> str:
    """Return a share of 0 to 1 in percent, which says 0 and 100 only of none and all."""
    from kvsweep.report.headline import share

    return share(part, 1.0).replace("\N{NO-BREAK SPACE}", " ")
