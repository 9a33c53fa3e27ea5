"""``kvsweep figures``: figures for print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvsweep.cli.files import check_outputs
from kvsweep.cli.options import say
from kvsweep.cli.pages.figures_study import curve, pareto, study_map, winner
from kvsweep.errors import InputError, shown

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from kvsweep.catalog.load import Catalog

F = TypeVar("F", bound=Callable[..., Any])

CONTEXT = {"help_option_names": ["-h", "--help"]}

_output = click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write; its suffix chooses .pdf, .svg or .png.",
)
_force = click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
_input = click.argument("input_file", metavar="INPUT", type=click.Path(path_type=Path))
_select = click.option(
    "--select",
    multiple=True,
    metavar="DIM=VALUE",
    help="Value of a dim that is not drawn over; repeatable. policy=a,b draws only these. "
    "hit_ratio is cut nearest 0.5 if not chosen.",
)
_hardware = click.option(
    "--hardware",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory of catalog files laid over the built-in ones; repeatable.",
)
_stack = click.option(
    "--stack", "stacks", multiple=True, metavar="KEY", help="Stack of the catalog; repeatable.  [default: all]"
)


def _map_options(command: F) -> F:
    """Add what maps of cells take: the sweep, the two dims drawn over, a choice for each other one."""
    command = click.option("--y", default="p95_seconds", show_default=True, metavar="DIM", help="Dim of the rows.")(
        command
    )
    command = click.option("--x", default="request_rate", show_default=True, metavar="DIM", help="Dim of the columns.")(
        command
    )
    return _input(_select(_output(_force(command))))


@click.group("figures", context_settings=CONTEXT)
def figures() -> None:
    """Draw figures as PDF, SVG or PNG."""


@figures.command("heatmap", context_settings=CONTEXT)
@_map_options
def heatmap(input_file: Path, x: str, y: str, select: tuple[str, ...], output: Path, force: bool) -> None:
    """Draw the verdict of each policy. INPUT is a sweep, drawn over two of its dims."""
    _draw_sweep("heatmap", input_file, {"x": x, "y": y}, select, (output, force))


@figures.command("sufficient", context_settings=CONTEXT)
@_map_options
def sufficient(input_file: Path, x: str, y: str, select: tuple[str, ...], output: Path, force: bool) -> None:
    """Draw the simplest policy that is enough. INPUT is a sweep, drawn over two of its dims."""
    _draw_sweep("sufficient", input_file, {"x": x, "y": y}, select, (output, force))


@figures.command("success", context_settings=CONTEXT)
@_input
@click.option("--x", default=None, metavar="DIM", help="Dim of the abscissa.  [default: hit_ratio or miss_blocks]")
@_select
@_output
@_force
def success(input_file: Path, x: str | None, select: tuple[str, ...], output: Path, force: bool) -> None:
    """Draw how often each policy meets the SLO. INPUT is a sweep; counted are its cells of P95 and request rate."""
    _draw_sweep("success", input_file, {"x": x}, select, (output, force))


@figures.command("violins", context_settings=CONTEXT)
@click.option(
    "--gpu", "gpus", multiple=True, metavar="KEY", help="GPU of the catalog; repeatable.  [default: the published six]"
)
@click.option(
    "--compression",
    type=float,
    callback=lambda context, option, value: _compression(value),
    default=1.0,
    show_default=True,
    metavar="C",
    help="Divide the KV bytes on the path by C; the published figures have 0.1, ten times the bytes.",
)
@_hardware
@_output
@_force
def violins(gpus: tuple[str, ...], compression: float, hardware: tuple[Path, ...], output: Path, force: bool) -> None:
    """Draw restore against recompute of GPUs. A violin holds 1764 deployments: DRAM x disk x link."""

    def make(catalog: Catalog) -> Figure:
        from kvsweep.report.plots.deployments.violins import DEFAULT_GPUS, figure

        return figure(catalog, gpus or DEFAULT_GPUS, compression)

    _draw_catalog(make, hardware, output, force)


@figures.command("roofline", context_settings=CONTEXT)
@_stack
@_hardware
@_output
@_force
def roofline(stacks: tuple[str, ...], hardware: tuple[Path, ...], output: Path, force: bool) -> None:
    """Draw the roofline of stacks. Computing, and computing plus reading the cache, over block counts."""

    def make(catalog: Catalog) -> Figure:
        from kvsweep.report.plots.deployments.roofline import figure

        return figure(catalog, stacks or list(catalog.stacks))

    _draw_catalog(make, hardware, output, force)


@figures.command("permutations", context_settings=CONTEXT)
@_hardware
@_output
@_force
def permutations(hardware: tuple[Path, ...], output: Path, force: bool) -> None:
    """Draw the spread of all permutations. 1764 stacks beside the compute lines of their GPUs."""

    def make(catalog: Catalog) -> Figure:
        from kvsweep.report.plots.deployments.permutations import figure

        return figure(catalog)

    _draw_catalog(make, hardware, output, force)


def _draw_sweep(
    kind: str, input_file: Path, axes: dict[str, str | None], select: tuple[str, ...], target: tuple[Path, bool]
) -> None:
    """Draw the figure `kind`, a module of the plots, from a sweep file into `target`, (path, overwrite)."""
    from importlib import import_module

    from kvsweep.report.plots.files import check_target, write_figure
    from kvsweep.results.netcdf import open_dataset

    check_target(target[0])
    check_outputs({"--output": target[0]}, target[1])
    chosen = _choices(select)
    with open_dataset(input_file) as ds:
        _check_axes(ds, axes)
        figure = import_module(f"kvsweep.report.plots.sweeps.{kind}").figure(ds, chosen, **axes, spelled="--select ")
    write_figure(figure, *target)
    say(f"wrote {target[0]}")


def _check_axes(ds: xr.Dataset, axes: dict[str, str | None]) -> None:
    """Raise InputError naming the option for a dim the sweep lacks, and for one drawn over twice."""
    from kvsweep.results.analysis.slices import grid_dims

    if "meets_slo" not in ds:
        return
    for option, dim in axes.items():
        if dim is not None and dim not in grid_dims(ds):
            raise InputError(
                f"--{option}: the sweep has no dim {shown(dim)}; it has {', '.join(grid_dims(ds)) or 'one point'}"
            )
    if len(axes) > 1 and len(set(axes.values())) == 1:
        raise InputError(f"--y: {axes['y']} is the dim of the columns; allowed: another one than --x")


def _draw_catalog(make: Callable[[Catalog], Figure], hardware: tuple[Path, ...], output: Path, force: bool) -> None:
    """Draw what `make` makes of the catalog into `output`."""
    from kvsweep.catalog.load import load
    from kvsweep.report.plots.files import check_target, write_figure

    check_target(output)
    check_outputs({"--output": output}, force)
    write_figure(make(load(hardware, "--hardware")), output, force)
    say(f"wrote {output}")


def _compression(value: float) -> float:
    """Return a usable --compression; also refuses NaN, which is below no bound."""
    if not 1e-6 <= value <= 1e6:
        raise InputError(f"--compression: {value} is out of range; allowed: a number >= 1e-06 and <= 1e+06")
    return value


def _choices(select: tuple[str, ...]) -> dict[str, str]:
    """Return the values of --select by dim."""
    chosen: dict[str, str] = {}
    for text in select:
        dim, sign, value = text.partition("=")
        if not sign or not dim.strip() or not value.strip():
            raise InputError(f"--select: {shown(text)} is not DIM=VALUE, as in hit_ratio=0.5")
        if dim.strip() in chosen:
            raise InputError(f"--select: {dim.strip()} is given twice; choose one value")
        chosen[dim.strip()] = value.strip()
    return chosen


for _command in (study_map, winner, curve, pareto):
    figures.add_command(_command)
