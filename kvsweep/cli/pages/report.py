"""``kvsweep report``: a sweep file as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from kvsweep.cli.files import check_outputs, check_page
from kvsweep.cli.options import say
from kvsweep.errors import InputError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("sweep", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="HTML file to write.  [default: SWEEP.html]")
@click.option("--force", is_flag=True, help="Overwrite the output.")
@click.option(
    "--max-points",
    type=click.IntRange(min=1),
    default=4_000_000,
    show_default=True,
    help="Most grid points the page may hold, policies not counted.",
)
def report(sweep: Path, output: Path | None, force: bool, max_points: int) -> None:
    """Write an interactive report of SWEEP, a NetCDF file made by 'kvsweep sweep'.

    The page is one file that works offline: maps of every policy over any two axes, success rates, read-outs.
    """
    from kvsweep.report import write_report
    from kvsweep.results.netcdf import open_dataset

    if not sweep.is_file():
        raise InputError(f"{sweep}: no such file")
    path = output or sweep.with_suffix(".html")
    check_page("--output", path)
    check_outputs({"--output": path}, force)
    with open_dataset(sweep) as dataset:
        write_report(dataset, path, cells_budget=max_points)
    say(f"wrote {path} ({path.stat().st_size / 1e6:.3g} MB)")
