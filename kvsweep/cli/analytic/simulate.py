"""``kvsweep simulate``: what each policy does with one request, or with each of several."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvsweep.cli.files import check_outputs
from kvsweep.cli.options import NUMBERS_HELP, dashed, given_options, model_options, output_options, say
from kvsweep.cli.output import Column, print_table, to_csv, to_json, wrapped
from kvsweep.costs.inputs import SIMULATE_DEFAULTS, WORKLOAD_FIELDS
from kvsweep.units import format_quantity

if TYPE_CHECKING:
    from kvsweep.policies.registry import PolicySet

Values = Mapping[str, Any]
"""A part of what `kvsweep.simulate` returns."""

SEVERAL_HELP = "--total-blocks, --miss-blocks and --hit-ratio take several values, as in 1000,2000 or 0:1:0.1."
LIMITS = {"latency": "latency_ratio", "GPU": "gpu_utilization", "storage": "storage_utilization"}
"""What an SLO limits to 1, with the field of an outcome that says how much of it is used."""
MOST_ALIKE = 4
"""From so many policies of equal time on, their number is told instead of their names."""
UNASKED = (
    "no request given; taken is the reference's: {total_blocks:,} blocks, all on {placement}, {request_rate:g} "
    "request/s, target {p95_seconds:g} s. --total-blocks, --placement, --request-rate and --p95-seconds set another"
).format(**SIMULATE_DEFAULTS)
LEGEND = """k: cached blocks recomputed instead of restored. total: the longer of restore and recompute, {overlap}.
The SLO holds while total / target (latency), request rate x recompute (GPU) and request rate x restore (storage)
are at most 1. used: the largest of the three."""


OVERLAPPING = {
    "ideal": "which overlap",
    "layerwise": "and a layer's share of the shorter",
    "serial": "but what follows the cached blocks waits for all of them",
}


@click.command("simulate", epilog=f"{NUMBERS_HELP} {SEVERAL_HELP}")
@model_options(SIMULATE_DEFAULTS)
@output_options((".json", ".csv"), "the result")
def simulate(output: Path | None, force: bool, output_format: str | None, quiet: bool, **options: Any) -> None:
    """Show what every policy does with one request: what it restores and recomputes, and whether the SLO holds.

    The result is printed; --output saves it, too.
    """
    from kvsweep.grid.plan import INSTEAD, notes
    from kvsweep.grid.simulate import simulate_plan, simulation_plan
    from kvsweep.results.files import replacing

    given = given_options(options)
    plan = simulation_plan(given, {name: dashed(name) for name in options})
    check_outputs({"--output": output}, force)
    result = simulate_plan(plan)
    for line in result.pop("warnings"):
        if not (quiet and line in notes(plan)):
            say(line)
    if output is not None:
        with replacing(output) as temporary:
            temporary.write_text(_as_text(result, output.suffix[1:]) + "\n", encoding="utf-8")
    if not quiet and not {*WORKLOAD_FIELDS, *INSTEAD, "placement"} & given.keys():
        say(UNASKED)
    if output is not None and not quiet:
        say(f"wrote {output}")
    if output_format in ("json", "csv"):
        click.echo(_as_text(result, output_format))
    else:
        _print_report(result, plan.policies)


def _as_text(result: Values, form: str) -> str:
    return to_json(result) if form == "json" else to_csv(_records(result))


def _records(result: Values) -> Iterator[Values]:
    """Yield one flat row for each request and policy, with all its inputs."""
    for row in result["results"]:
        request = {name: value for name, value in row.items() if not isinstance(value, Mapping)}
        for policy in result["slo_summary"]:
            yield {
                **result["hardware"], **result["experiment"], **request, **row[policy],
                "speedups": row["speedups"][policy],
            }  # fmt: skip


def _print_report(result: Values, policies: PolicySet) -> None:
    """Print the deployment, and for each request a line for every policy and which one to take."""
    from kvsweep.cli.analytic.summary import ids_line, told_names  # which need xarray: --help does without

    for line in _deployment_lines(result["hardware"], result["experiment"]):
        click.echo(line)
    for row in result["results"]:
        click.echo()
        for line in _request_lines(row, result["experiment"]):
            click.echo(line)
        click.echo()
        told = told_names(policies[name] for name in result["slo_summary"])
        print_table([{**row[name], "told": label} for name, label in told.items()], _COLUMNS)
        click.echo()
        for line in _conclusions(row, [policies[name] for name in result["slo_summary"]]):
            click.echo(line)
    click.echo(LEGEND.format(overlap=OVERLAPPING[result["experiment"]["overlap"]]))
    for line in ids_line(policies[name] for name in result["slo_summary"]):
        click.echo(line)


def _slo(outcome: Values) -> str:
    if outcome["meets_slo"]:
        return "pass"
    return f"fail: {' '.join(limit for limit, used in LIMITS.items() if outcome[used] > 1.0)}"


_COLUMNS = (
    Column("policy", lambda outcome: outcome["told"]),
    Column("k", lambda outcome: outcome["reassigned_hit_blocks"]),
    Column("mode", lambda outcome: outcome["decision_mode"]),
    Column("restore [s]", lambda outcome: outcome["storage_time"]),
    Column("recompute [s]", lambda outcome: outcome["recompute_time"]),
    Column("total [s]", lambda outcome: outcome["total_time"]),
    Column("used", lambda outcome: max(outcome[used] for used in LIMITS.values())),
    Column("SLO", _slo),
)


def _deployment_lines(hardware: Values, experiment: Values) -> Iterator[str]:
    yield wrapped(f"World       {experiment['world']}", 12)
    yield (
        f"Deployment  {hardware['stack_key']}: {hardware['gpu_count']} x {hardware['gpu_key']}, "
        f"{hardware['dram_count']} x {hardware['dram_key']}, {hardware['disk_key']}, {hardware['link_key']}"
    )
    size = format_quantity(experiment["bytes_per_block"], "byte")
    yield (
        f"Model       {experiment['model']}: {experiment['model_params'] / 1e9:.4g} billion parameters, "
        f"{experiment['tokens_per_block']:g} tokens and {size} a KV block, "
        f"{experiment['gpu_eta']:.4g} of the peak compute"
        + (f", {experiment['attention_eta']:.4g} in attention" if experiment["cost_model"] == "attention" else "")
    )
    if experiment["kv_fits"]:
        yield f"Fits        {experiment['kv_fits']}"
    if not experiment["weights_fit"]:
        yield "            its weights do not fit in HBM, which then holds no KV blocks"


def _request_lines(row: Values, experiment: Values) -> Iterator[str]:
    tokens = experiment["tokens_per_block"]
    yield (
        f"Request     {row['total_blocks']} blocks ({row['total_blocks'] * tokens:,.0f} tokens): "
        f"{row['hit_blocks']} cached (placement {experiment['placement']}), "
        f"{row['miss_blocks']} missing; {row['request_rate']:.4g} requests/s, target {row['p95_seconds']:.4g} s"
    )
    restore, recompute = row["storage_throughput"], row["recompute_throughput"]
    restored = format_quantity(restore * experiment["bytes_per_block"], "byte/s")
    first = " of the first tokens" if experiment["cost_model"] == "attention" else ""
    came = f"{restore * tokens:.4g} tokens/s ({restore:.4g} blocks/s, {restored})" if restore < math.inf else "at once"
    yield f"Rates       restore {came}, recompute {recompute * tokens:.4g} tokens/s ({recompute:.4g} blocks/s){first}"
    whole = ", ".join(f"{seconds:.4g} s from {tier}" for tier, seconds in row["restore_all_seconds"].items())
    yield f"All cached  restored {whole}; recomputed {row['recompute_all_seconds']:.4g} s"
    for tier in row.get("placement", {}).get("tiers", ()):
        over = f", {tier['overflow_blocks']:.6g} more than fit" if tier["overflow_blocks"] else ""
        held, room = tier["resident_blocks"], tier["capacity_blocks"]
        yield f"{'Tier':<12}{tier['tier']}: {held:.6g} of {room:.6g} blocks ({held * tokens:,.0f} tokens){over}"


def _conclusions(row: Values, policies: list[Any]) -> Iterator[str]:
    """Yield which policy is the simplest that passes, and by how much the fastest is faster than the others."""
    from kvsweep.cli.analytic.summary import told_names
    from kvsweep.results.analysis.ranking import simplest_first

    told = told_names(policies)
    order = simplest_first((len(policy.modes) for policy in policies), (policy.order for policy in policies))
    passing = [policies[index] for index in order if row[policies[index].name]["meets_slo"]]
    if passing:
        yield f"Simplest policy that meets the SLO: {told[passing[0].name]} ({passing[0].description})"
    times = {policy.name: float(row[policy.name]["total_time"]) for policy in policies}
    # As many digits as the table shows: what is equal there is a tie.
    least = f"{min(times.values()):.4g}"
    fastest = [name for name, time in times.items() if f"{time:.4g}" == least]
    if not passing:
        yield "No policy meets the SLO." + _way_out(told[fastest[0]], row[fastest[0]])
    ratios = row["speedups"][fastest[0]].items()
    others = ", ".join(f"{ratio:.4g} x as fast as {told[name]}" for name, ratio in ratios if name not in fastest)
    first = [told[name] for name in fastest]
    if others:
        alike = f"{len(fastest)} of {len(times)} policies alike"
        yield f"Fastest: {' and '.join(first) if len(fastest) < MOST_ALIKE else alike}, {others}."
    elif len(fastest) > 1:
        yield f"Equally fast: {', '.join(first) if len(fastest) < MOST_ALIKE else 'all'}."


def _way_out(name: str, outcome: Values) -> str:
    """Return the SLO that what a policy does here would meet, rounded to the safe side; empty where there is none."""
    total = float(outcome["total_time"])
    if not 0.0 < total < math.inf:
        return ""
    unit = 10.0 ** (math.floor(math.log10(total)) - 2)
    target = math.ceil(total / unit) * unit
    rate = 1.0 / target
    unit = 10.0 ** (math.floor(math.log10(rate)) - 2)
    return (
        f" {name} would, with a target of {target:.3g} s and at most {math.floor(rate / unit) * unit:.3g} requests/s."
    )
