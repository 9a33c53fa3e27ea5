"""``kvsweep overhead``: what a decision of each policy costs on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvsweep.cli.files import check_outputs
from kvsweep.cli.options import (
    AXES_HELP,
    NUMBERS_HELP,
    dashed,
    given_options,
    model_options,
    number_option,
    output_options,
    say,
)
from kvsweep.cli.output import Column, print_table, to_csv, to_json
from kvsweep.cli.progress import progress
from kvsweep.costs.inputs import HARDWARE_FIELDS, MODEL_FIELDS, SIMULATE_DEFAULTS
from kvsweep.errors import InputError
from kvsweep.overhead.inputs import DEFAULTS, NUMBERS, PATHS

if TYPE_CHECKING:
    import xarray as xr

    from kvsweep.overhead.plan import OverheadPlan

F = TypeVar("F", bound=Callable[..., Any])

FIGURES = ("total", "per_request", "relative", "distribution")
"""What each figure's name adds to the prefix."""
FIGURE_SUFFIXES = (".pdf", ".svg", ".png")
UNITS = {"scalar": ("us", 1.0), "jit_call": ("us", 1.0), "jit_loop": ("ns", 1e3)}
"""Unit each path is printed in, and how many of it are in a microsecond."""

LONG = 150.0
"""Expected time [s] of a run beyond which it is said beforehand."""

LEGEND = """*: baseline. +median, +mean: above the mean of the baseline policies. ±: half the 95 % interval of +mean,
from noise and from how far the baseline policies differ. x base: mean cost over theirs, with the loop; other costs
are without it. % req: mean over the combinations of added time over modelled time of the request."""


def _harness_options(command: F) -> F:
    """Add the options of the harness itself."""
    defaults = {name: str(value) for name, value in DEFAULTS.items()}
    defaults["request_counts"] = "1,3,10,32,100,… up to --max-requests"
    numbers = [number_option(field, defaults[name]) for name, field in NUMBERS.items()]
    texts = [
        click.option(
            "--baseline-policies", metavar="IDS", show_default=DEFAULTS["baseline_policies"],
            help="Policies without decision logic; costs above their mean are what a policy adds. Always timed.",
        ),
        click.option(
            "--paths", metavar="LIST", show_default=DEFAULTS["paths"],
            help="Ways to run a decision: " + "; ".join(f"{path}, {what}" for path, what in PATHS.items()) + ".",
        ),
        click.option(
            "--figure-prefix", type=click.Path(path_type=Path), metavar="PREFIX",
            help=f"Draw PREFIX{', PREFIX'.join(f'_{name}.pdf' for name in FIGURES)}; "
            f"a suffix of PREFIX ({', '.join(FIGURE_SUFFIXES)}) chooses another form.",
        ),
    ]  # fmt: skip
    for option in reversed([*numbers, *texts]):
        command = option(command)
    return command


@click.command("overhead", epilog=f"--request-counts takes several: {AXES_HELP}. {NUMBERS_HELP}")
@_harness_options
@model_options({"placement": SIMULATE_DEFAULTS["placement"]}, {**HARDWARE_FIELDS, **MODEL_FIELDS})
@output_options((".nc", ".json"), "the result")
def overhead(
    output: Path | None, force: bool, output_format: str | None, quiet: bool, figure_prefix: Path | None, **options: Any
) -> None:
    """Time the decision of every policy, side by side in plain Python, called compiled, and in a compiled loop.

    Decisions are made over a seeded pool of workloads: in streams of growing length, and each workload alone. What
    they cost is a property of this machine; hardware and model only move the share of the modelled request time.
    """
    from kvsweep.overhead.dataset import overhead_dataset
    from kvsweep.overhead.harness import compiling, run
    from kvsweep.overhead.plan import make_overhead_plan

    plan = make_overhead_plan(given_options(options), {name: dashed(name) for name in options})
    drawn = _figure_files(figure_prefix)
    check_outputs({"--output": output, "--figure-prefix": drawn}, force)
    waiting = compiling(plan)
    if waiting and not quiet:
        say(f"compiling {', '.join(waiting)} (once for each policy and machine, a few seconds) …")
    if plan.seconds > LONG and not quiet:
        say(f"{plan.decisions:,} decisions for each policy and path: about {_duration(plan.seconds)}; Ctrl-C ends it")
    with progress("timing", quiet) as move:
        ds = overhead_dataset(plan, run(plan, move))
    for line in ds.attrs.get("kvsweep_warnings", "").splitlines():
        if not (quiet and line in plan.notes):
            say(line)
    _save(ds, output, drawn, quiet)
    _print(ds, plan, output_format or "table")


def _duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    units = (("years", 3.156e7), ("days", 86400.0), ("hours", 3600.0))
    name, length = next((unit for unit in units if seconds >= 2 * unit[1]), ("minutes", 60.0))
    return f"{seconds / length:,.0f} {name}"


def _figure_files(prefix: Path | None) -> list[Path]:
    """Return the files of the figures, in the order of `FIGURES`."""
    if prefix is None:
        return []
    if not prefix.name:
        raise InputError(f"--figure-prefix: {str(prefix)!r} is no prefix of a file name; allowed: as in out/a100")
    suffix = prefix.suffix if prefix.suffix in FIGURE_SUFFIXES else ".pdf"
    stem = prefix.name.removesuffix(suffix)
    return [prefix.with_name(f"{stem}_{name}{suffix}") for name in FIGURES]


def _save(ds: xr.Dataset, output: Path | None, drawn: list[Path], quiet: bool) -> None:
    from kvsweep.overhead.record import record
    from kvsweep.results.files import replacing
    from kvsweep.results.netcdf import write_netcdf

    if output is not None and output.suffix == ".nc":
        write_netcdf(ds, output)
    elif output is not None:
        with replacing(output) as temporary:
            temporary.write_text(to_json(record(ds)) + "\n", encoding="utf-8")
    if drawn:
        from kvsweep.report.plots.files import write_figure
        from kvsweep.report.plots.measured import overhead as plots

        for name, file in zip(FIGURES, drawn, strict=True):
            write_figure(plots.figure(ds, name), file, force=True)
    for file in [*([output] if output else []), *drawn]:
        if not quiet:
            say(f"wrote {file}")


def _print(ds: xr.Dataset, plan: OverheadPlan, form: str) -> None:
    from kvsweep.overhead.record import record, summary

    if form == "json":
        click.echo(to_json(record(ds)))
        return
    names = [subject.policy.name for subject in plan.subjects]
    rows = [{"path": path, "policy": name, **summary(ds, name, path)} for path in plan.paths for name in names]
    if form == "csv":
        click.echo(to_csv(rows))
        return
    combinations, rounds = len(plan.pool), plan.combination_rounds
    click.echo(
        f"Per-combination summary: {combinations} workload combinations x {plan.combination_reps:,} reps x {rounds} "
        f"rounds = {combinations * plan.combination_reps * rounds:,} timed decisions per policy and path"
    )
    labels = {subject.policy.name: subject.policy.label for subject in plan.subjects}
    click.echo(f"Baseline (no decision logic): {', '.join(labels[name] for name in plan.baseline)}")
    for path in plan.paths:
        click.echo()
        _print_path(ds, plan, path, [row for row in rows if row["path"] == path])
    click.echo()
    click.echo(LEGEND)
    click.echo(
        f"Measured on {ds.attrs['host_cpu_model']}, {ds.attrs['host_cpu_cores']} cores, {ds.attrs['host_python']}"
    )
    click.echo(f"Harness: {ds.attrs['harness_ratio']:.3f} x the processor time of the decisions it timed")


def _print_path(ds: xr.Dataset, plan: OverheadPlan, path: str, rows: list[dict[str, Any]]) -> None:
    """Print the table of one path, and its costs by decision mode."""
    unit, scale = UNITS[path]
    more = "" if path != "jit_loop" else f", {min(row['decisions_timed'] for row in rows):,} decisions or more"
    click.echo(f"{path}: {PATHS[path]} [{unit} a decision{more}]")

    def time(group: str, name: str) -> Callable[[dict[str, Any]], float]:
        return lambda row: float(row[group][name]) * scale

    columns = [
        Column("policy", lambda row: row["label"] + (" *" if row["policy"] in plan.baseline else "")),
        *(Column(name, time("cost_us", name)) for name in ("median", "mean", "p95", "max")),
        *(Column(f"+{name}", time("added_us", name)) for name in ("median", "mean")),
        Column("±", lambda row: _half_width(row) * scale),
        Column("x base", lambda row: float(row["times_baseline"])),
        Column("% req", lambda row: float(row["percent_of_request_time"])),
    ]
    print_table(rows, columns)
    for row in rows:
        modes = row["by_decision_mode"]
        if len(modes) > 1:
            parts = (
                f"{mode} {cost['mean_us'] * scale:.4g} {unit} in {cost['combinations']} of {len(plan.pool)}"
                for mode, cost in modes.items()
            )
            click.echo(f"{row['label']} by decision mode: {', '.join(parts)} combinations")


def _half_width(row: dict[str, Any]) -> float:
    low, high = row["added_us"]["mean_interval"]
    return float(high - low) / 2.0
