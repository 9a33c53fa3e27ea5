"""``kvsweep roofline``: the numbers behind the roofline figure, or of a model whether restoring is worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kvsweep.cli.analytic.worth import check_alone, restore_roofline
from kvsweep.cli.files import check_outputs
from kvsweep.cli.options import AXES_HELP, number_option
from kvsweep.cli.output import FORMATS, Column, print_table, to_csv, to_json
from kvsweep.costs.inputs import NUMBER_FIELDS
from kvsweep.errors import InputError


@dataclass(frozen=True, slots=True)
class Point:
    """Both curves of a stack [s] at one block count [block], with the price of its parts [USD]."""

    stack: str
    cost_dollars: float | None
    blocks: int
    compute_seconds: float
    storage_compute_seconds: float


COLUMNS = (
    Column("stack", lambda point: point.stack),
    Column("cost [USD]", lambda point: point.cost_dollars),
    Column("blocks", lambda point: point.blocks),
    Column("compute [s]", lambda point: point.compute_seconds),
    Column("compute + storage [s]", lambda point: point.storage_compute_seconds),
)


@click.command("roofline", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--stack", "stacks", multiple=True, metavar="KEY", help="Stack of the catalog; repeatable.  [default: all]"
)
@click.option(
    "--blocks",
    default="500,16000,62500,64000,128000,200000,400000",
    show_default=True,
    metavar="AXIS",
    help=f"Block counts: {AXES_HELP}.",
)
@click.option("--model", metavar="KEY", help="Model of the catalog, or a config.json: is it worth restoring?")
@click.option("--gpu", metavar="KEY", help="GPU that would recompute, with --model.")
@number_option(NUMBER_FIELDS["gpu_count"], None)
@click.option(
    "--link",
    multiple=True,
    metavar="KEY",
    help="Link the KV would come over, with --model; repeatable.  [default: 25 to 800 Gb/s, PCIe and NVLink-C2C]",
)
@click.option("--disk", multiple=True, metavar="KEY", help="Disk it would come from, with --model; repeatable.")
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="FILE", help="Draw it, with --model.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option(
    "--hardware",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory of catalog files laid over the built-in ones; repeatable.",
)
@click.option(
    "--format", "output_format", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True,
    help="Form of the result.",
)  # fmt: skip
def roofline(
    stacks: tuple[str, ...], blocks: str, hardware: tuple[Path, ...], output: Path | None, force: bool, **given: Any
) -> None:
    """Print computing time, and that plus reading the cache, of stacks over block counts.

    With --model: from which prompt on its KV is worth restoring rather than recomputing, path by path.
    """
    if given["model"] is not None:
        _restore(stacks, hardware, output, force, given)
        return
    check_alone(given, output)
    points = _points(stacks, blocks, hardware)
    if given["output_format"] == "table":
        print_table(points, COLUMNS)
    else:
        click.echo(to_json(points) if given["output_format"] == "json" else to_csv(points))


def _restore(
    stacks: tuple[str, ...], hardware: tuple[Path, ...], output: Path | None, force: bool, given: dict[str, Any]
) -> None:
    from kvsweep.catalog.load import load

    if stacks:
        raise InputError("--stack: beside --model; allowed: one of them")
    if output is not None:
        from kvsweep.report.plots.files import check_target

        check_target(output)
        check_outputs({"--output": output}, force)
    if given["gpu_count"] is not None:
        given["gpu_count"] = NUMBER_FIELDS["gpu_count"].check(given["gpu_count"], "--gpu-count")
    restore_roofline(load(hardware, "--hardware"), given, output, force)


def _points(stacks: Sequence[str], blocks: str, hardware: Sequence[Path]) -> list[Point]:
    from kvsweep.catalog.load import load
    from kvsweep.costs.deployment import deploy
    from kvsweep.costs.roofline import compute_seconds, cost_dollars, machine, storage_compute_seconds
    from kvsweep.grid.axes import number_axis

    catalog = load(hardware, "--hardware")
    counts = number_axis(blocks, NUMBER_FIELDS["total_blocks"], "--blocks")
    points = []
    for key in stacks or list(catalog.stacks):
        deployment = deploy(catalog, {"stack": catalog.part("stacks", key, "--stack").key})
        of, cost = machine(deployment), cost_dollars(catalog, deployment)
        times = zip(counts, compute_seconds(counts, of), storage_compute_seconds(counts, of), strict=True)
        points += [Point(key, cost, int(count), float(compute), float(both)) for count, compute, both in times]
    return points
