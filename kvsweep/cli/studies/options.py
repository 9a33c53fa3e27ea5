"""What the commands of ``kvsweep study`` share: options, files that are written, rows that are printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvsweep.cli.files import check_outputs
from kvsweep.cli.options import given_options, say
from kvsweep.cli.output import FORMATS, Column, print_table, to_csv, to_json
from kvsweep.cli.trace_options import TOLD, tell_notes, told_options
from kvsweep.errors import InputError

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from kvsweep.studies.traces import TraceSpec

F = TypeVar("F", bound=Callable[..., Any])
Option = Callable[[F], F]
PATH = click.Path(path_type=Path)
FIDELITIES = ("engine", "paper")
DRAWINGS = (".pdf", ".svg", ".png")

DRAWING: Option[Any] = click.option(
    "-o", "--output", type=PATH, metavar="FILE", help="Draw the figure; its suffix chooses .pdf, .svg or .png."
)
FILES: Sequence[Option[Any]] = (
    click.option("--data", type=PATH, metavar="FILE.nc", help="Write the Dataset, too."),
    click.option("--force", is_flag=True, help="Overwrite the files."),
    click.option("--format", "output_format", type=click.Choice(FORMATS), default="table", show_default=True,
                 help="Form of what is printed."),
    click.option("--quiet", "-q", is_flag=True, help="Print no notes on stderr."),
)  # fmt: skip


def trace_options(default: str, about: str) -> Sequence[Option[Any]]:
    """Return the options that name a trace file and say how it is read."""
    given = click.option("--trace", type=PATH, metavar="FILE", show_default=default, help=about)
    return given, told_options()


def taken_trace(given: dict[str, Any]) -> dict[str, Any]:
    """Return what a command was told of its trace as fields of a `FileTrace`, taken out; refuses it without a trace."""
    told = given_options({name: given.pop(name) for name in TOLD})
    if told and given["trace"] is None:
        name = "from" if "format" in told else next(iter(told)).replace("_", "-")
        raise InputError(f"--{name}: has no effect without --trace; allowed: both")
    return told


def tell_trace(spec: TraceSpec, given: Mapping[str, Any]) -> None:
    """Say on stderr how the trace file of a study is read."""
    if given["trace"] is not None and not given["quiet"]:
        tell_notes(given["trace"], spec.make(Path(), 0))


def with_options(*options: Option[Any]) -> Option[Any]:
    """Return the decorator that adds `options`, and after them those that every study has."""

    def decorate(command: F) -> F:
        for option in reversed((*options, *FILES)):
            command = option(command)
        return command

    return decorate


def check_files(given: Mapping[str, Any], output: Path | None, labels: Sequence[str] = ("",)) -> None:
    """Refuse early a drawing or a Dataset that cannot be written, under its name with any of the `labels`."""
    for option, path, suffixes in (("--output", output, DRAWINGS), ("--data", given["data"], (".nc",))):
        if path is not None and path.suffix not in suffixes:
            raise InputError(f"{option}: {path} has no known suffix; allowed: {', '.join(suffixes)}")
    paths = {"--output": output, "--data": given["data"]}
    several = {option: [named(path, label) for label in labels] for option, path in paths.items() if path is not None}
    check_outputs(several, given["force"])


def named(path: Path, label: str) -> Path:
    """Return `path` with a label at the end of its stem."""
    return path.with_name(f"{path.stem}{label}{path.suffix}")


def write_data(ds: xr.Dataset, path: Path | None, given: Mapping[str, Any]) -> None:
    """Write the Dataset, if that is asked for."""
    if path is not None:
        from kvsweep.results.netcdf import write_netcdf

        write_netcdf(ds, path)
        _wrote(path, given)


def write_drawing(draw: Callable[[], Figure], path: Path | None, force: bool, given: Mapping[str, Any]) -> None:
    """Draw the figure into a file, if that is asked for."""
    if path is not None:
        from kvsweep.report.plots.files import write_figure

        write_figure(draw(), path, force)
        _wrote(path, given)


def _wrote(path: Path, given: Mapping[str, Any]) -> None:
    if not given["quiet"]:
        say(f"wrote {path}")


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], form: str, notes: Sequence[str]) -> None:
    """Print `rows` in one of the forms; a table has `columns`, and `notes` below it."""
    if form == "json":
        click.echo(to_json(rows))
    elif form == "csv":
        click.echo(to_csv(rows))
    else:
        print_table(rows, columns)
        if notes:
            click.echo()
        for note in notes:
            click.echo(note)


def titled(titles: Mapping[str, str]) -> list[Column]:
    """Return the columns of rows that are mappings: the title of each field."""
    return [Column(title, lambda row, name=name: row[name]) for name, title in titles.items()]  # type: ignore[misc]
