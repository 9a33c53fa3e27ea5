"""``kvsweep sweep``: every policy over a grid of deployments and requests, to a file or as a summary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvsweep.cli.analytic.sweep_study import RUN_SETTINGS, foreign_code, merged
from kvsweep.cli.files import check_outputs, check_page
from kvsweep.cli.options import (
    AXES_HELP,
    NUMBERS_HELP,
    dashed,
    given_options,
    model_options,
    output_options,
    say,
)
from kvsweep.cli.progress import progress
from kvsweep.costs.inputs import SWEEP_DEFAULTS
from kvsweep.errors import InputError
from kvsweep.results.names import REDUCED_OVER, REDUCTIONS

if TYPE_CHECKING:
    import xarray as xr

    from kvsweep.grid.plan import Plan


@click.command("sweep", epilog=f"Every NUMBER, KEY and WHERE may be an axis: {AXES_HELP}. {NUMBERS_HELP}")
@click.argument("study", type=click.Path(path_type=Path), required=False, metavar="[STUDY.yaml]")
@model_options(SWEEP_DEFAULTS)
@click.option("--dtype", type=click.Choice(("f4", "f8")), show_default="f4", help="Precision of the stored values.")
@click.option(
    "--reduce", metavar="LIST", help=f"Keep only these, for grids too large to store: {', '.join(REDUCTIONS)}."
)
@click.option(
    "--reduce-over", metavar="DIMS", show_default=",".join(REDUCED_OVER), help="Dims that --reduce runs over."
)
@click.option("--threads", type=int, metavar="N", show_default="all cores", help="Cores to use.")
@click.option("--summary", is_flag=True, help="Print success rates even with --output; without it they always are.")
@click.option("--no-policy-files", is_flag=True, help="Refuse a study that names Python files of its own to run.")
@click.option("--dry-run", is_flag=True, help="Check everything, print size, memory and time, and write nothing.")
@click.option(
    "--report", type=click.Path(path_type=Path), metavar="FILE.html", help="Write an interactive report, too."
)
@output_options((".nc", ".csv"), "the result")
def sweep(study: Path | None, **options: Any) -> None:
    """Evaluate every policy over the product of the given axes.

    STUDY.yaml holds the same settings by their names with underscores; options override it. A saved result carries
    its study in the attribute kvsweep_config.
    """
    names = ("output", "report", "force", "output_format", "quiet", "summary", "dry_run")
    show = _Show(*(options.pop(name) for name in names))
    refuse = options.pop("no_policy_files")
    given = given_options(options)
    source = click.get_current_context().get_parameter_source("policy_files")
    of_environment = source is click.core.ParameterSource.ENVIRONMENT
    task = _task(study, given, ("policy_files",) if of_environment else (), refuse)
    _check_output(task, show)
    if show.dry_run:
        _print_estimate(task, show)
    else:
        _run(task, show)


@dataclass(frozen=True)
class _Show:
    """Where results go and what is said on the way."""

    output: Path | None
    report: Path | None
    force: bool
    form: str | None
    quiet: bool
    summary: bool
    dry_run: bool

    def note(self, line: str) -> None:
        """Print a line that `--quiet` suppresses."""
        if not self.quiet:
            say(line)


@dataclass(frozen=True)
class _Task:
    """A checked plan and how to run it; `reduction` is (names, dims reduced over), None for a stored grid."""

    plan: Plan
    reduction: tuple[Any, Any] | None
    threads: int | None


def _task(study: Path | None, given: dict[str, Any], weak: tuple[str, ...], refuse: bool) -> _Task:
    """Return the task that `study` and the options `given` describe; the file overrides those named in `weak`.

    Code that the study names is said to run before it does, or refused.
    """
    from kvsweep.grid.plan import make_plan
    from kvsweep.grid.reduce import check_reduction
    from kvsweep.grid.sweep import check_threads

    options, spell = merged(study, given, weak)
    for file in foreign_code(study, options, refuse) if study is not None else ():
        say(f"{study}: policy_files: runs {file}; --no-policy-files refuses that")
    reduce, over, threads = (options.pop(name, None) for name in RUN_SETTINGS)
    plan = make_plan(options, spell)
    check_threads(plan, threads)
    if reduce is None:
        if over is not None:
            raise InputError(f"{plan.called('reduce_over')}: has no effect without {dashed('reduce')}; allowed: both")
        return _Task(plan, None, threads)
    reduction = reduce, REDUCED_OVER if over is None else over
    check_reduction(plan, *reduction)
    return _Task(plan, reduction, threads)


def _check_output(task: _Task, show: _Show) -> None:
    from kvsweep.grid.estimate import result_size
    from kvsweep.results.table import MAX_ROWS

    if show.report is not None:
        _check_report(task, show.report)
    check_outputs({"--output": show.output, "--report": show.report}, show.force, task.plan.policy_files)
    if show.output is None:
        return
    rows, _ = result_size(task.plan, task.reduction)
    if show.output.suffix == ".csv" and rows > MAX_ROWS and not show.force:
        raise InputError(
            f"--output: {show.output} would have {rows} rows; allowed: {MAX_ROWS} rows of CSV, a .nc file, or --force"
        )


def _check_report(task: _Task, path: Path) -> None:
    from kvsweep.report.payload import DEFAULT_BUDGET, check_budget

    if task.reduction is not None:
        raise InputError("--report: a reduction has no points to show; allowed: --report without --reduce")
    check_page("--report", path)
    check_budget({name: len(points) for name, points in task.plan.axes.items()}, DEFAULT_BUDGET)


def _run(task: _Task, show: _Show) -> None:
    from kvsweep.cli.analytic.summary import print_summary
    from kvsweep.grid.plan import notes
    from kvsweep.grid.sweep import run_plan

    for line in task.plan.policies.problems:
        say(line)
    for line in notes(task.plan):
        show.note(line)
    reduce, over = task.reduction or (None, REDUCED_OVER)
    if reduce is not None and "dtype" in task.plan.given:
        show.note(f"{task.plan.called('dtype')} has no effect with {task.plan.called('reduce')}, which is always f8")
    with progress("evaluating", show.quiet) as move:
        ds = run_plan(task.plan, reduce, over, task.threads, move, show.note)
    told = {*task.plan.policies.problems, *notes(task.plan)}
    for line in ds.attrs.get("kvsweep_warnings", "").splitlines():
        if line not in told:
            say(line)
    if show.output is not None:
        _save(ds, task.plan, show.output)
        show.note(f"wrote {show.output} ({show.output.stat().st_size / 1e6:.3g} MB)")
    if show.report is not None:
        from kvsweep.report import write_report

        write_report(ds, show.report)
        show.note(f"wrote {show.report} ({show.report.stat().st_size / 1e6:.3g} MB)")
    if show.summary or (show.output is None and show.report is None) or show.form is not None:
        print_summary(ds, task.plan, show.form or "table")


def _save(ds: xr.Dataset, plan: Plan, output: Path) -> None:
    from kvsweep.results.netcdf import write_netcdf
    from kvsweep.results.table import write_csv

    if output.suffix == ".nc":
        write_netcdf(ds, output)
    else:
        miss = () if "miss_blocks" in plan.axes else ("miss_blocks",)
        write_csv(ds, ("policy", *plan.axes, *miss), output)


def _print_estimate(task: _Task, show: _Show) -> None:
    from kvsweep.cli.output import to_csv, to_json
    from kvsweep.grid.estimate import estimate
    from kvsweep.grid.evaluate import require_memory

    suffix = show.output.suffix if show.output else None
    expected = estimate(task.plan, task.reduction, suffix, (task.threads, show.note))
    if show.form in ("json", "csv"):
        click.echo(to_json(expected) if show.form == "json" else to_csv([expected]))
    else:
        for line in expected.lines():
            click.echo(line)
    require_memory(expected.memory_bytes, "the result")
