"""``kvsweep cluster plan``: the fewest workers that meet an SLO."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvsweep.cli.options import POLICY_FILES, Files, say
from kvsweep.cli.output import Column, print_table, to_json
from kvsweep.cli.progress import Lines
from kvsweep.cli.slo import limits_of
from kvsweep.cli.trace_options import taken_out, tell_notes, told_options
from kvsweep.errors import InputError, ResultError

if TYPE_CHECKING:
    from kvsweep.studies.plan import Plan, Search

_PATH = click.Path(path_type=Path)


@click.command("plan")
@click.argument("trace", type=_PATH, metavar="TRACE")
@click.option("--config", type=_PATH, metavar="FILE", required=True, help="Cluster file; its counts are sought.")
@click.option("--profile", type=_PATH, metavar="FILE", required=True,
              help="Profile of service models, or the name of a shipped one.")  # fmt: skip
@click.option("--slo", metavar="LIMITS", show_default="that of the cluster file",
              help="Limits of a request, as in ttft=2s,tpot=50ms,e2e=30s.")  # fmt: skip
@click.option("--attainment", type=float, default=0.95, show_default=True, metavar="SHARE",
              help="Share of the requests that must meet all limits.")  # fmt: skip
@click.option("--most", type=click.IntRange(1, 4096), default=64, show_default=True, help="Most workers of a role.")
@click.option("--request-rate", type=float, metavar="RATE", help="Scale arrivals to this mean rate [1/s].")
@click.option("--threads", type=click.IntRange(1, 4096), metavar="N", show_default="all cores",
              help="Simulations at a time.")  # fmt: skip
@click.option("--policy-file", "policy_files", type=Files(), multiple=True, metavar="FILE", envvar=POLICY_FILES,
              show_envvar=True, help="Python file with a policy of your own; repeatable.")  # fmt: skip
@told_options()
@click.option("--format", "output_format", type=click.Choice(("table", "json")), default="table", show_default=True,
              help="Form of the result.")  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Print no notes and no progress on stderr.")
def plan(trace: Path, config: Path, profile: Path, **given: Any) -> None:
    """Find the fewest workers with which TRACE meets an SLO often enough, and what one less would fail by.

    Sizes are simulated whole, from that of the sizing formula on. Exit code 1 says that not even the most are enough.
    """
    from kvsweep.cluster.inputs.config import read_config
    from kvsweep.cluster.inputs.profiles import read_any_profile, service_profile
    from kvsweep.cluster.setup.context import admitted, with_context
    from kvsweep.studies.plan import check_roles, make_search
    from kvsweep.studies.plan import plan as find
    from kvsweep.trace.convert import scale_to_rate
    from kvsweep.trace.read import read_trace

    if not 0.0 < given["attainment"] <= 1.0:
        raise InputError(f"--attainment: {given['attainment']:g}; allowed: more than 0, at most 1")
    limits = limits_of(given["slo"])
    cluster_config = read_config(config)
    check_roles(cluster_config)
    service = service_profile(cluster_config, read_any_profile(profile))
    slo = cluster_config.slo
    limits = limits or {
        name: limit for name in ("ttft", "tpot", "e2e") if (limit := getattr(slo, f"{name}_seconds")) is not None
    }
    requests = read_trace(trace, taken_out(given))
    if given["request_rate"] is not None:
        if not 1e-9 <= given["request_rate"] <= 1e9:
            raise InputError(f"--request-rate: {given['request_rate']:g}; allowed: 1e-09 to 1e+09 1/s")
        requests = scale_to_rate(requests, given["request_rate"])
    quiet = given["quiet"]
    on_terminal = sys.stderr.isatty()
    show = None if quiet else _count if on_terminal else Lines("sizes simulated").move
    search = make_search(
        requests, cluster_config, service, limits, given["attainment"], given["most"],
        threads=given["threads"], progress=show, policy_files=given["policy_files"],
    )  # fmt: skip
    if not quiet:
        tell_notes(trace, requests)
        for note in admitted(requests, with_context(cluster_config, service)).notes:
            say(f"{trace}: {note}")
        if service.kind == "assumed":
            say(f"{profile}: assumed, not measured")
    found = find(search)
    if on_terminal and not quiet:
        click.echo(err=True)
    _print(found, search, given["output_format"])
    if found.found is None:
        raise ResultError(f"not met with {given['most']} workers of each role; --most allows more")


def _count(done: int) -> None:
    click.echo(f"\r{done} sizes simulated", nl=False, err=True)


def _print(found: Plan, search: Search, form: str) -> None:
    if form == "json":
        click.echo(to_json(found.record()))
        return
    shown = found.found or found.best
    counts = " + ".join(f"{count} {role}" for role, count in zip(found.roles, shown.counts, strict=True))
    verdict = "meets" if found.found else "does not meet"
    limits = " and ".join(f"{name} <= {limit:g} s" for name, limit in search.limits.items())
    click.echo(f"{counts} workers: {shown.attainment:.2%} of the requests meet {limits}; this {verdict} "
               f"{search.attainment:.4g}")  # fmt: skip
    for line in found.binding:
        click.echo(f"  {line}")
    click.echo()
    rows = sorted(search.tried.values(), key=lambda each: (sum(each.counts), each.counts))
    columns = [
        Column(role, lambda each, i=i: each.counts[i])  # type: ignore[misc]
        for i, role in enumerate(found.roles)
    ]
    columns.append(Column("attained", lambda each: each.attainment))
    columns += [
        Column(f"{name} p95 [s]", lambda each, name=name: each.p95[name])  # type: ignore[misc]
        for name in search.limits
    ]
    columns.append(Column("slow requests wait for", lambda each: each.waited_for))
    print_table(rows, columns)
    start = ", ".join(f"{count} {role}" for role, count in zip(found.roles, found.started, strict=True))
    click.echo(f"\n{found.simulations} sizes simulated, from {start} of the sizing formula (no reuse, utilisation 0.7)")
    if not found.monotone:
        click.echo("attainment does not grow with workers everywhere: more of them share less of a prefix")
    if found.found:
        known = "every smaller total was simulated" if found.certain else "smaller totals follow from monotonicity"
        click.echo(known)
