"""``kvsweep catalog``: list the catalogs, and check a directory of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvsweep.cli.output import FORMATS, Column, print_table, to_csv, to_json
from kvsweep.units import GB, KB, MB

if TYPE_CHECKING:
    from kvsweep.catalog.load import Catalog

F = TypeVar("F", bound=Callable[..., Any])

KINDS = {
    "gpus": "accelerators",
    "drams": "host memories",
    "disks": "drives, arrays and remote stores",
    "links": "links and network paths, one direction",
    "models": "language models",
    "stacks": "presets of parts",
    "prices": "prices at a date",
}
"""Kinds of catalog entries and what they are."""


KV_DTYPES = ("bf16", "fp16", "fp8", "int8", "nvfp4")
WEIGHT_DTYPES = ("bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4")


def _listing_options(command: F) -> F:
    """Add the options of a listing: form of the result, and directories laid over the built-in files."""
    command = click.option(
        "--hardware",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Directory of catalog files laid over the built-in ones; repeatable, later ones win. "
        "KVSWEEP_HARDWARE may name more, which come first.",
    )(command)
    return _format_option(command)


_format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    show_default=True,
    help="Form of the result; json and csv hold every field in base units.",
)


@click.group("catalog", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@_listing_options
@click.pass_context
def catalog(ctx: click.Context, output_format: str, hardware: tuple[Path, ...]) -> None:
    """List hardware, models, presets and policies with the source of their figures."""
    if ctx.invoked_subcommand is not None:
        return
    entries = _load(hardware)
    rows = [{"kind": kind, "entries": len(entries.entries(kind)), "what": what} for kind, what in KINDS.items()]
    _print(rows, [_field(name) for name in ("kind", "entries", "what")], output_format)
    if output_format == "table":
        click.echo("List one kind with `kvsweep catalog gpus`; policies with `kvsweep catalog policies`.", err=True)


def _list_command(kind: str) -> click.Command:
    """Return the command that lists the entries of `kind`."""

    @_listing_options
    @click.pass_context
    def command(ctx: click.Context, output_format: str, hardware: tuple[Path, ...]) -> None:
        output_format = _format(ctx, output_format)
        rows = list(_load(_hardware(ctx, hardware)).entries(kind).values())
        _print(
            rows if output_format == "table" else [_record(kind, row) for row in rows], _columns(kind), output_format
        )

    return click.command(kind, help=f"List {KINDS[kind]}.")(command)


for _kind in KINDS:
    catalog.add_command(_list_command(_kind))


@catalog.command("policies")
@_format_option
@click.pass_context
def policies(ctx: click.Context, output_format: str) -> None:
    """List the policies that decide how many hit blocks to recompute."""
    from kvsweep.policies.registry import load_policies

    fields = ("name", "label", "description", "color", "order", "recomputes", "modes", "origin")
    found = load_policies()
    rows = [{field: getattr(policy, field) for field in fields} for policy in found.values()]
    columns = [_field(name) for name in ("name", "label", "order", "recomputes", "origin", "description")]
    _print(rows, columns, _format(ctx, output_format))
    for problem in found.problems:
        click.echo(problem, err=True)


@catalog.command("sources")
@_listing_options
@click.pass_context
def sources(ctx: click.Context, output_format: str, hardware: tuple[Path, ...]) -> None:
    """List the keys in the source columns with what they stand for."""
    citations = _load(_hardware(ctx, hardware)).sources
    rows = [{"key": key, "citation": citation} for key, citation in citations.items()]
    _print(rows, [_field("key"), _field("citation")], _format(ctx, output_format))


@catalog.command("show")
@click.argument("key", metavar="KEY")
@_listing_options
@click.pass_context
def show(ctx: click.Context, key: str, output_format: str, hardware: tuple[Path, ...]) -> None:
    """Print every figure of the part, model or price KEY with its source."""
    from kvsweep.cli.analytic.entry import show_entry

    show_entry(_load(_hardware(ctx, hardware)), key, _format(ctx, output_format))


@catalog.command("model")
@click.argument("model", metavar="MODEL")
@click.option(
    "--kv-dtype", type=click.Choice(KV_DTYPES), default=KV_DTYPES[0], show_default=True, help="Numbers of the KV cache."
)
@click.option(
    "--weight-dtype", type=click.Choice(WEIGHT_DTYPES), show_default="the checkpoint's", help="Numbers of the weights."
)
@_listing_options
@click.pass_context
def model(
    ctx: click.Context, model: str, kv_dtype: str, weight_dtype: str | None, output_format: str,
    hardware: tuple[Path, ...],
) -> None:  # fmt: skip
    """Print what MODEL keeps, moves, allocates and computes: a key, or the path of a config.json.

    Fields are those of Hugging Face: full and latent attention, windows, linear layers, mixtures, quantised weights.
    """
    from kvsweep.cli.analytic.entry import show_model

    show_model(_load(_hardware(ctx, hardware)), model, (kv_dtype, weight_dtype), _format(ctx, output_format))


@catalog.command("check")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.pass_context
def check(ctx: click.Context, directory: Path) -> None:
    """Check a directory of catalog files and say what it adds and changes."""
    below, above = _load(_hardware(ctx, ())), _load(_hardware(ctx, (directory,)))
    for kind in KINDS:
        old, new = below.entries(kind), above.entries(kind)
        added = [key for key in new if key not in old]
        changed = [key for key in old if old[key] != new[key]]
        for word, keys in (("adds", added), ("changes", changed)):
            if keys:
                click.echo(f"{kind}: {word} {', '.join(keys)}")
    click.echo(f"{directory}: valid")


def _format(ctx: click.Context, own: str) -> str:
    """Return the format of a subcommand, which may stand before its name, as in ``catalog --format csv gpus``."""
    given = ctx.get_parameter_source("output_format") is not click.core.ParameterSource.DEFAULT
    before = ctx.parent.params["output_format"] if ctx.parent else own
    return own if given else str(before)


def _hardware(ctx: click.Context, own: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the overlay directories given before the name of a subcommand and then its `own`."""
    before: tuple[Path, ...] = ctx.parent.params["hardware"] if ctx.parent else ()
    return (*before, *own)


def _load(hardware: tuple[Path, ...]) -> Catalog:
    from kvsweep.catalog.load import load

    return load(hardware, "--hardware")


def _print(rows: list[Any], columns: list[Column], output_format: str) -> None:
    if output_format == "table":
        print_table(rows, columns)
    else:
        click.echo(to_json(rows) if output_format == "json" else to_csv(rows))


def _field(name: str) -> Column:
    """Return the column of a field of a mapping."""
    return Column(name, lambda row: row[name])


def _text(name: str, header: str | None = None) -> Column:
    """Return the column of a text or count of an entry."""
    return Column(header or name, lambda entry: getattr(entry, name))


def _scaled(name: str, header: str, unit: float) -> Column:
    """Return the column of the number `name` of an entry in units of `unit` base units."""

    def value(entry: Any) -> float | None:
        number = getattr(entry, name)
        return None if number is None else number / unit

    return Column(header, value)


def _kv_figures(model: Any) -> dict[str, float]:
    """Return the KV bytes that follow from the shape of a model, bf16 [byte]; none without a shape.

    Logical per token, allocated per token by an engine that keeps window layers whole, and fixed per sequence.
    """
    from kvsweep.catalog import models

    if model.shape is None:
        return {}
    return {
        "bytes_per_token": models.kv_bytes_per_token(model.shape),
        "bytes_per_token_all_layers": models.kv_bytes_per_token_all_layers(model.shape),
        "fixed_bytes_per_sequence": models.kv_fixed_bytes_per_sequence(model.shape),
    }


def _kv(name: str, header: str, unit: float) -> Column:
    """Return the column of a figure of `_kv_figures` in units of `unit` bytes."""
    return Column(header, lambda model: figures[name] / unit if (figures := _kv_figures(model)) else None)


def _record(kind: str, entry: Any) -> Any:
    """Return what JSON and CSV hold of an entry: its fields, for a model with its KV bytes."""
    return asdict(entry) | {"kv": _kv_figures(entry) or None} if kind == "models" else entry


def _columns(kind: str) -> list[Column]:
    """Return the columns of the table of `kind`."""
    bandwidth = _scaled("bandwidth", "rate [GB/s]", GB)
    capacity = _scaled("capacity", "size [GB]", GB)
    cost = _scaled("cost", "cost [USD]", 1.0)
    columns = {
        "gpus": [_text("name"), _scaled("peak_flops", "peak [TFLOP/s]", 1e12),
                 _scaled("hbm_bandwidth", "HBM [GB/s]", GB), _scaled("hbm_capacity", "HBM [GB]", GB), cost],
        "drams": [_text("name"), bandwidth, capacity, cost],
        "disks": [_text("name"), bandwidth, capacity, cost],
        "links": [_text("name"), bandwidth, cost],
        "models": [_scaled("params", "params [1e9]", 1e9), _scaled("bytes_per_block", "block [MB]", MB),
                   _kv("bytes_per_token", "KV/token [kB]", KB),
                   _kv("bytes_per_token_all_layers", "all layers [kB]", KB),
                   _kv("fixed_bytes_per_sequence", "fixed [MB]", MB)],
        "stacks": [_text("gpu"), _text("gpu_count", "GPUs"), _text("dram"), _text("dram_count", "DRAMs"),
                   _text("disk"), _text("link")],
        "prices": [_text("unit"), _text("date"), _scaled("low", "low [USD]", 1.0),
                   _scaled("typical", "typical [USD]", 1.0), _scaled("high", "high [USD]", 1.0)],
    }  # fmt: skip
    return [_text("key"), *columns[kind], _text("source"), _text("kind")]
