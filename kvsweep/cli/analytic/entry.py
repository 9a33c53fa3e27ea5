"""``kvsweep catalog show`` and ``catalog model``: one entry with its sources, one model with what it costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kvsweep.cli.output import Column, print_table, to_json
from kvsweep.errors import InputError, unknown_name
from kvsweep.units import format_quantity

if TYPE_CHECKING:
    from kvsweep.catalog.load import Catalog
    from kvsweep.catalog.specs import Entry, Model

RANKS = (1, 2, 4, 8)
"""Ranks of tensor parallelism that allocations are told for."""
_NOT_SHOWN = ("key", "name", "family", "note", "source", "kind")


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One figure of an entry: its field, value with unit, and where it comes from."""

    field: str
    value: object
    unit: str
    kind: str
    source: str


def show_entry(catalog: Catalog, key: str, output_format: str) -> None:
    """Print every figure of the entries called `key`, of whatever kind, with sources; raises InputError for none."""
    from kvsweep.catalog.load import FILES

    found = {kind: catalog.entries(kind)[key] for kind in FILES if key in catalog.entries(kind)}
    if not found:
        raise unknown_name("KEY", key, dict.fromkeys(key for kind in FILES for key in catalog.entries(kind)))
    if output_format != "table":
        click.echo(to_json({kind: dataclasses.asdict(entry) for kind, entry in found.items()}))
        return
    for number, (kind, entry) in enumerate(found.items()):
        click.echo("\n" * (number > 0) + f"{key}  ({kind}): {entry.name}")
        figures = list(_figures(entry))
        print_table(figures, [
            Column("figure", lambda one: one.field), Column("value", lambda one: _told(one.value, one.unit)),
            Column("kind", lambda one: one.kind), Column("source", lambda one: one.source),
        ], None)  # fmt: skip
        for source in dict.fromkeys(one.source for one in figures):
            click.echo(f"{source}: {catalog.sources.get(source, 'not told')}")
        if entry.note:
            click.echo(f"note: {' '.join(entry.note.split())}")


def _figures(entry: Entry) -> Iterator[Figure]:
    from kvsweep.catalog.specs import Sourced

    for field, value, unit in _fields(entry):
        if not isinstance(value, Sourced):
            yield Figure(field, value, unit, entry.kind, entry.source)
            continue
        for inner, figure, inner_unit in _fields(value):
            yield Figure(f"{field}.{inner}", figure, inner_unit, value.kind, value.source)


def _fields(record: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield the fields of a record that are stated, with their units."""
    from kvsweep.catalog.fields import field_types

    cls: type = type(record)
    for name, accepted in field_types(cls).items():
        value = getattr(record, name)
        none = value is None or (accepted.range is not None and accepted.range.or_zero and value == 0)
        if name not in _NOT_SHOWN and not none:
            yield name, value, accepted.range.unit if accepted.range else ""


def _told(value: object, unit: str) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ", ".join(f"{name} {part}" for name, part in dataclasses.asdict(value).items())
    if not isinstance(value, int | float):
        return str(value)
    if unit in ("byte", "byte/s", "FLOP/s", "s") and value:
        return f"{value:,.10g} {unit} ({format_quantity(float(value), unit)})"
    digits = f"{value:.12g}" if abs(value) < 1e4 else f"{value:,.12g}"
    return digits + (f" {unit}" if unit != "1" else "")


def show_model(catalog: Catalog, name: str, dtypes: tuple[str, str | None], output_format: str) -> None:
    """Print what a model, by key or by its config.json, keeps, moves, allocates and computes."""
    model = catalog.part("models", name, "MODEL")
    if model.shape is None or model.weights is None:
        raise InputError(f"MODEL: {name} has no shape in the catalog; allowed: a model that has, or a config.json")
    figures = model_figures(model, *dtypes)
    if output_format != "table":
        click.echo(to_json({"model": model.key, **figures}))
        return
    shape = model.shape
    click.echo(f"{model.key}: {shape.architecture}, {shape.attention}, {_layers(model)}; context {shape.max_context:,}")
    kv, weights = dtypes
    click.echo(f"KV in {kv}, weights in {weights or model.weights.dtype}")
    print_table(figures.items(), [Column("figure", lambda item: item[0]), Column("value", lambda item: _figure(item))])
    click.echo(
        "moved: what a path carries to restore a token, once however many GPUs hold a copy; index keys are in it."
    )
    click.echo(
        "allocated: on all ranks together; whole windows: by an engine that keeps window layers for every token."
    )


def model_figures(model: Model, kv: str, weights: str | None) -> dict[str, float]:
    """Return the figures of a model by name: bytes [byte], parameters [1], FLOPs [FLOP]."""
    from kvsweep.catalog import models
    from kvsweep.costs.memory import stored_bytes

    shape, counts = model.shape, model.weights
    assert shape is not None and counts is not None
    work = models.prefill_work(model)
    return {
        "kv_bytes_per_token": models.kv_bytes_per_token(shape, kv),
        "index_bytes_per_token": models.index_bytes_per_token(shape),
        "moved_bytes_per_token": models.kv_bytes_per_token_moved(shape, kv),
        "fixed_bytes_per_sequence": models.kv_fixed_bytes_per_sequence(shape, kv),
        **{f"allocated_bytes_per_token_tp{n}": models.kv_bytes_per_token_allocated(shape, n, kv) for n in RANKS},
        "allocated_bytes_per_token_whole_windows": models.kv_bytes_per_token_allocated(shape, 1, kv, True),
        "params_total": counts.total,
        "params_active": counts.active,
        "params_per_prompt_token": counts.computed,
        "weight_bytes": stored_bytes(model, weights),
        "flops_per_token": work.products,
        "flops_per_token_window": work.window,
        "flops_per_token_pair": work.pair,
        "flops_per_token_pair_sparse": work.sparse_pair,
    }


def _figure(item: tuple[str, float]) -> str:
    name, value = item
    unit = "FLOP" if name.startswith("flops") else "" if name.startswith("params") else "byte"
    return f"{value:,.12g} {unit}".rstrip()


def _layers(model: Model) -> str:
    shape = model.shape
    assert shape is not None
    kinds = {
        "full": shape.layers_full_attention, f"window {shape.window}": shape.layers_window,
        "linear": shape.layers_linear, "without mixing": shape.layers_plain,
    }  # fmt: skip
    return f"{shape.layers} layers ({', '.join(f'{count} {kind}' for kind, count in kinds.items() if count)})"
