"""``kvsweep figures map|winner|curve``: figures of cluster studies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvsweep.cli.files import check_outputs
from kvsweep.cli.options import say
from kvsweep.errors import InputError, shown

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

F = TypeVar("F", bound=Callable[..., Any])
_PATH = click.Path(path_type=Path)
SPELLED = "--"


def _axis(ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
    """Return the dim of an axis, which may be called by its path, as in a study file: ``prefill.max_running``."""
    return None if given is None else _dim(given)


def _dim(given: str) -> str:
    from kvsweep.studies.axes import canonical

    try:
        return canonical(given, "")
    except InputError:  # what there is instead only the study tells
        return given


def _options(command: F) -> F:
    """Add what all of them take: the study, the figure drawn, a choice for each other axis, the file."""
    for option in reversed((
        click.argument("input_file", metavar="INPUT", type=_PATH),
        click.option("--value", default="ttft", show_default=True, metavar="NAME", help="Figure to draw."),
        click.option("--of", metavar="POINT", help="Point along the figure's own dim: p95, l2, an SLO, a cause.  "
                     "[default: mean, l1, the first]"),
        click.option("--select", multiple=True, metavar="AXIS=VALUE", help="Value of an axis that is not drawn over; "
                     "repeatable. Seeds are averaged unless one is chosen."),
        click.option("-o", "--output", required=True, type=_PATH, metavar="FILE",
                     help="File to write; its suffix chooses .pdf, .svg or .png."),
        click.option("--force", is_flag=True, help="Overwrite FILE if it exists."),
    )):  # fmt: skip
        command = option(command)
    return command


@click.command("map")
@_options
@click.option("--x", required=True, metavar="AXIS", callback=_axis, help="Axis of the columns.")
@click.option("--y", required=True, metavar="AXIS", callback=_axis, help="Axis of the rows.")
@click.option("--panel", metavar="AXIS", callback=_axis, help="Axis with a panel for each of its points.")
def study_map(x: str, y: str, panel: str | None, **given: Any) -> None:
    """Draw a map of one figure. INPUT is a cluster study, drawn over two of its axes."""

    def make(ds: xr.Dataset, value: tuple[str, str | None], select: dict[str, str]) -> Figure:
        from kvsweep.report.plots.studies.study import map_figure

        return map_figure(ds, (x, y), value, panel, select, SPELLED)

    _draw(make, **given)


@click.command("winner")
@_options
@click.option("--x", required=True, metavar="AXIS", callback=_axis, help="Axis of the columns.")
@click.option("--y", required=True, metavar="AXIS", callback=_axis, help="Axis of the rows.")
@click.option("--over", default="gateway", show_default=True, metavar="AXIS", callback=_axis,
              help="Axis whose best point is drawn.")  # fmt: skip
def winner(x: str, y: str, over: str, **given: Any) -> None:
    """Draw which choice is best where. INPUT is a cluster study, drawn over two of its axes."""

    def make(ds: xr.Dataset, value: tuple[str, str | None], select: dict[str, str]) -> Figure:
        from kvsweep.report.plots.studies.study import winner_figure

        return winner_figure(ds, (x, y), over, value, select, SPELLED)

    _draw(make, **given)


@click.command("curve")
@_options
@click.option("--x", required=True, metavar="AXIS", callback=_axis, help="Axis of the abscissa.")
@click.option("--lines", metavar="AXIS", callback=_axis, help="Axis with a line for each of its points.")
def curve(x: str, lines: str | None, **given: Any) -> None:
    """Draw one figure over an axis. INPUT is a cluster study; bands are 95 % intervals over its seeds."""

    def make(ds: xr.Dataset, value: tuple[str, str | None], select: dict[str, str]) -> Figure:
        from kvsweep.report.plots.studies.study import curve_figure

        return curve_figure(ds, x, value, lines, select, SPELLED)

    _draw(make, **given)


@click.command("pareto")
@click.argument("input_file", metavar="INPUT", type=_PATH)
@click.option("-o", "--output", required=True, type=_PATH, metavar="FILE",
              help="File to write; its suffix chooses .pdf, .svg or .png.")  # fmt: skip
@click.option("--max-ttft", type=float, metavar="SECONDS",
              help="Greatest mean TTFT on the front.  [default: the study's target, else 10 s]")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
def pareto(input_file: Path, output: Path, max_ttft: float | None, force: bool) -> None:
    """Draw throughput per GPU against speed for a user. INPUT is a cluster study; its Pareto front is marked."""
    if max_ttft is not None and not max_ttft > 0.0:
        raise InputError(f"--max-ttft: {max_ttft:g}; allowed: > 0 s")

    def make(ds: xr.Dataset, value: tuple[str, str | None], select: dict[str, str]) -> Figure:
        from kvsweep.report.plots.studies.pictures import pareto_figure

        return pareto_figure(ds, max_ttft)

    _draw(make, input_file, "ttft", None, (), output, force)


def _draw(
    make: Callable[[xr.Dataset, tuple[str, str | None], dict[str, str]], Figure], input_file: Path, value: str,
    of: str | None, select: tuple[str, ...], output: Path, force: bool,
) -> None:  # fmt: skip
    from kvsweep.report.plots.files import check_target, write_figure
    from kvsweep.results.analysis.studies import require_study
    from kvsweep.results.netcdf import open_dataset

    check_target(output)
    check_outputs({"--output": output}, force)
    chosen: dict[str, str] = {}
    for text in select:
        name, sign, point = text.partition("=")
        if not sign or not name.strip() or not point.strip():
            raise InputError(f"--select: {shown(text)} is not AXIS=VALUE, as in ttl=60")
        chosen[_dim(name.strip())] = point.strip()
    with open_dataset(input_file) as ds:
        try:
            require_study(ds)
        except InputError as error:
            raise InputError(f"{input_file}: {error}") from error
        figure = make(ds, (value, of), chosen)
    write_figure(figure, output, force)
    say(f"wrote {output}")
