"""``kvsweep compare``: what differs between two sweep files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvsweep.cli.files import check_outputs, check_page
from kvsweep.cli.options import say
from kvsweep.cli.output import FORMATS, LONGEST_NAME, Column, print_table, shortened, to_csv, to_json

if TYPE_CHECKING:
    from kvsweep.results.analysis.compare import Comparison, PolicyComparison, TimeChange


@click.command("compare", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file_a", metavar="A", type=click.Path(path_type=Path))
@click.argument("file_b", metavar="B", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "output_format",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    show_default=True,
    help="Form of the result; csv holds the row of each policy only.",
)
@click.option(
    "--report", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with maps of what changed."
)
@click.option("--force", is_flag=True, help="Overwrite the report.")
@click.option(
    "--max-points",
    type=click.IntRange(min=1),
    default=4_000_000,
    show_default=True,
    help="Most grid points in both that the report may hold, policies not counted.",
)
def compare(file_a: Path, file_b: Path, output_format: str, report: Path | None, force: bool, max_points: int) -> None:
    """Compare sweep B with sweep A: configuration, and verdicts and times on the grid points both have."""
    from kvsweep.results.analysis.compare import compare as compare_datasets
    from kvsweep.results.netcdf import open_dataset

    if report is not None:
        check_page("--report", report)
        check_outputs({"--report": report}, force)
    with open_dataset(file_a) as a, open_dataset(file_b) as b:
        found = compare_datasets(a, b)
        if report is not None:
            from kvsweep.report import write_comparison

            write_comparison(a, b, report, names=(file_a.name, file_b.name), cells_budget=max_points)
            say(f"wrote {report} ({report.stat().st_size / 1e6:.3g} MB)")
    if output_format == "table":
        _print_configuration(found)
        click.echo()
        _print_results(found)
    else:
        click.echo(to_json(found) if output_format == "json" else to_csv(found.policies))


def _print_configuration(found: Comparison) -> None:
    if not found.differences:
        click.echo("Same configuration.")
        return
    from kvsweep.report.provenance import setting

    sides = [Column(side.upper(), lambda row, side=side: setting(row.name, getattr(row, side))) for side in "ab"]  # type: ignore[misc]
    print_table(found.differences, [_field("name", "setting"), *sides])


def _print_results(found: Comparison) -> None:
    def called(name: str) -> str:
        return shortened(found.labels[name], LONGEST_NAME)

    click.echo(f"{found.points} grid points in both")
    for axis in found.axes:
        if not axis.n_a == axis.n_b == axis.n_common:
            click.echo(f"{axis.dim}: {axis.n_common} in both, of {axis.n_a} in A and {axis.n_b} in B")
    for side, names in (("A", found.policies_only_a), ("B", found.policies_only_b)):
        if names:
            click.echo(f"only in {side}: {', '.join(map(called, names))}")
    click.echo()
    columns = [
        Column("policy", lambda row: called(row.policy)),
        _field("pass_to_fail", "pass→fail"),
        _field("fail_to_pass", "fail→pass"),
        _field("pass_both", "pass both"),
        _field("fail_both", "fail both"),
        Column("max T_B/T_A", lambda row: row.worst.ratio),
        Column("min T_B/T_A", lambda row: row.best.ratio),
    ]
    print_table(found.policies, columns)
    lines = [line for row in found.policies for line in _extremes(row, called(row.policy))]
    if lines:
        click.echo("\n" + "\n".join(lines))


def _field(name: str, header: str) -> Column:
    return Column(header, lambda row: getattr(row, name))


def _extremes(row: PolicyComparison, name: str) -> Iterator[str]:
    """Yield where the time of a policy, called `name`, grew and shrank the most, if it did."""
    if row.worst.ratio > 1.0:
        yield f"{name} grew the most, {_change(row.worst)}"
    if row.best.ratio < 1.0:
        yield f"{name} shrank the most, {_change(row.best)}"


def _change(change: TimeChange) -> str:
    points = (f"{value:g}" if isinstance(value, float) else value for value in change.where.values())
    place = ", ".join(f"{dim}={point}" for dim, point in zip(change.where, points, strict=True))
    return f"from {change.seconds_a:.4g} s to {change.seconds_b:.4g} s" + (f", at {place}" if place else "")
