"""``kvsweep cluster sweep``: a study of whole clusters, in parallel and resumable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvsweep.cli.files import check_outputs, check_page
from kvsweep.cli.options import POLICY_FILES, Files, say
from kvsweep.cli.output import Column, print_wide_table, to_csv, to_json
from kvsweep.cli.progress import progress
from kvsweep.errors import InputError, ResultError

if TYPE_CHECKING:
    import xarray as xr

    from kvsweep.studies.study import Study

_PATH = click.Path(path_type=Path)
MOST_LINES = 40
"""Most lines of the table on a terminal; --format csv prints all."""


def _netcdf(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and path.suffix != ".nc":
        raise InputError(f"{param.opts[0]}: {path} has no known suffix; allowed: .nc")
    return path


@click.command("sweep")
@click.argument("study", type=_PATH, metavar="STUDY.yaml")
@click.option("--output", "-o", type=_PATH, metavar="FILE", callback=_netcdf, help="NetCDF file of the result.")
@click.option("--axis", "axes", multiple=True, metavar="NAME=VALUES",
              help="Axis laid over those of the study, as in ttl=1,10,60,inf; repeatable.")  # fmt: skip
@click.option("--threads", type=int, metavar="N", show_default="all cores", help="Simulations at a time.")
@click.option("--policy-file", "policy_files", type=Files(), multiple=True, metavar="FILE", envvar=POLICY_FILES,
              show_envvar=True, help="Python file with a policy of your own; repeatable.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Check everything, print size and expected time, simulate one cell.")
@click.option("--partial", is_flag=True, help="Write what an interrupted or running study has so far; run nothing.")
@click.option("--report", type=_PATH, metavar="FILE.html", help="Write an interactive report, too.")
@click.option("--force", is_flag=True, help="Overwrite the output.")
@click.option("--format", "output_format", type=click.Choice(("table", "json", "csv")),
              help="Print the figures of every cell; a table where nothing is saved.")  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Print no notes and no progress on stderr.")
def sweep(
    study: Path, output: Path | None, axes: tuple[str, ...], threads: int | None, quiet: bool, **given: Any
) -> None:
    """Simulate a cluster at every combination of the axes in STUDY.yaml.

    The study names a cluster file, profiles and traces, and gives axes: any field of the cluster file (gateway,
    eviction, host_tokens, n_prefill, prefill.max_running, …), ttl, link, request_rate or rate_scale, and seed. Results
    are kept as they come: the same command goes on where it was stopped. A cell that cannot be simulated is reported
    and left empty; exit code 1 says that there are such.
    """
    from kvsweep.studies.study import read_study

    if given["report"] is not None:
        check_page("--report", given["report"])
    found = read_study(study, axes, given["policy_files"])
    check_outputs({"--report": given["report"]}, given["force"], found.inputs)
    if given["dry_run"]:
        _estimate(found, output, threads, given)
        return
    if given["partial"]:
        _partial(found, output, given["force"], quiet)
        return
    from kvsweep.studies.running.run import Show, check_output, run_study

    check_output(output, given["force"], found.inputs)
    note = (lambda line: None) if quiet else say
    for label, profile in found.profiles.items():
        if profile.kind == "assumed":
            note(f"profile {label}: assumed, not measured")
    with progress("simulating", quiet) as move:
        ds = run_study(found, output, threads, given["force"], Show(move, note))
    if given["report"] is not None:
        from kvsweep.report import write_report

        write_report(ds, given["report"])
        note(f"wrote {given['report']}")
    _tell(ds, output, given["output_format"], note)


def _tell(ds: xr.Dataset, output: Path | None, form: str | None, note: Any) -> None:
    if output is not None:
        note(f"wrote {output} ({output.stat().st_size / 1e6:.3g} MB): {ds['cell_state'].size} simulations")
    from kvsweep.results.analysis.studies import alike

    for line in alike(ds):
        note(line)
    if form is not None or output is None:
        print_cells(ds, form or "table")
    require_all_cells(ds)


def require_all_cells(ds: xr.Dataset) -> None:
    """Raise ResultError where simulations of a study failed, and say why."""
    failed = int(ds.attrs["kvsweep_failed"])
    if failed:
        from kvsweep.results.attrs import mapping_attr

        reasons = mapping_attr(ds, "kvsweep_failures")
        for point, reason in list(reasons.items())[:5]:
            say(f"failed: {point}: {reason}")
        raise ResultError(f"{failed} of {ds['cell_state'].size} simulations failed; the others are whole")


def print_cells(ds: xr.Dataset, form: str) -> None:
    """Print the main figures of every cell, averaged over seeds with their 95 % interval."""
    from kvsweep.results.analysis.studies import table

    rows = table(ds)
    if form == "json":
        click.echo(to_json(rows))
    elif form == "csv":
        click.echo(to_csv(rows))
    else:
        axes = [name for name in rows[0] if isinstance(rows[0][name], str)]
        figures = [name for name in rows[0] if name not in axes and not name.startswith("± ")]
        keys = [Column(name, lambda row, name=name: row[name]) for name in axes]  # type: ignore[misc]
        print_wide_table(rows[:MOST_LINES], keys, [_beside_interval(name) for name in figures])
        if len(rows) > MOST_LINES:
            say(f"{len(rows) - MOST_LINES} more lines; --format csv prints all")


def _beside_interval(name: str) -> Column:
    """Return the column of a figure, and of its interval over seeds where there is one."""
    interval = f"± {name.partition(' [')[0]}"

    def value(row: Mapping[str, Any]) -> object:
        half = row.get(interval, math.nan)
        return f"{row[name]:.4g} ± {half:.2g}" if math.isfinite(half) and math.isfinite(row[name]) else row[name]

    return Column(name, value)


def _partial(study: Study, output: Path | None, force: bool, quiet: bool) -> None:
    from kvsweep.results.netcdf import write_netcdf
    from kvsweep.studies.running.dataset import study_dataset
    from kvsweep.studies.running.journal import journal_path, read_journal
    from kvsweep.studies.running.run import begin, check_output
    from kvsweep.studies.running.workloads import Workloads

    if output is None:
        raise InputError("--partial: has no effect without --output; allowed: both")
    check_output(output, force, study.inputs)
    outcome = begin(study, Workloads(study))
    outcome.resume(read_journal(journal_path(output))[0], journal_path(output), force)
    ds = study_dataset(outcome)
    write_netcdf(ds, output)
    if not quiet:
        say(f"wrote {output}: {ds.attrs['kvsweep_pending']} of {ds['cell_state'].size} simulations pending")


def _estimate(study: Study, output: Path | None, threads: int | None, given: dict[str, Any]) -> None:
    from kvsweep.studies.running.estimate import estimate
    from kvsweep.studies.running.run import check_output, checked_threads

    check_output(output, given["force"], study.inputs)
    expected = estimate(study, checked_threads(threads))
    form = given["output_format"] or "table"
    if form == "json":
        click.echo(to_json(expected))
    elif form == "csv":
        click.echo(to_csv([expected]))
    else:
        for line in expected.lines():
            click.echo(line)
