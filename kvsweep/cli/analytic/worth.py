"""The restore roofline of ``kvsweep roofline --model``: over which path, and from which prompt on, restoring pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvsweep.cli.output import Column, print_table, to_csv, to_json, wrapped
from kvsweep.errors import InputError

if TYPE_CHECKING:
    from kvsweep.catalog.load import Catalog
    from kvsweep.costs.deployment import Deployment
    from kvsweep.costs.roofline import BreakEven

LINKS = (
    "tcp-25g", "rdma-100g", "rdma-200g", "rdma-400g", "rdma-800g", "pcie4-x16", "pcie5-x16", "nvlink-c2c-h2d",
)  # fmt: skip
"""Links compared where nobody names any: the memory at their other end is not the limit."""
LENGTHS = (1024, 8192, 32_768, 131_072)
"""Prompts whose times are compared [token]."""
DRAM, DISK = 1, 2


@dataclass(frozen=True, slots=True)
class Row:
    """A path, and how many times as long recomputing a prompt takes as restoring it [1]."""

    path: str
    bytes_per_s: float
    setup_seconds: float
    worth_from_tokens: float
    ratio_1k: float
    ratio_8k: float
    ratio_32k: float
    ratio_128k: float


COLUMNS = (
    Column("path", lambda row: row.path),
    Column("rate [GB/s]", lambda row: row.bytes_per_s / 1e9),
    Column("recompute/restore 1k", lambda row: row.ratio_1k),
    Column("8k", lambda row: row.ratio_8k),
    Column("32k", lambda row: row.ratio_32k),
    Column("128k", lambda row: row.ratio_128k),
    Column("worth it from [token]", lambda row: row.worth_from_tokens),
)


def restore_roofline(catalog: Catalog, given: Mapping[str, Any], output: Path | None, force: bool) -> None:
    """Print, and draw into `output`, over which paths the model `given` is worth restoring."""
    from kvsweep.grid.flags import flags, world_line

    parts = {name: given[name] for name in ("model", "gpu", "gpu_count") if given[name] is not None}
    for name, kind in (("model", "models"), ("gpu", "gpus")):
        if name in parts:
            catalog.part(kind, parts[name], f"--{name}")
    own, paths = _paths(catalog, parts, given["link"], given["disk"])
    rows = [_row(name, path, own) for name, path in paths.items()]
    if output is not None:
        from kvsweep.report.plots.deployments.worth import figure
        from kvsweep.report.plots.files import write_figure

        last = own.prefill.max_context if own.prefill is not None else LENGTHS[-1]
        write_figure(figure(own, paths, max(float(last), 1000.0)), output, force)
    if given["output_format"] != "table":
        click.echo(to_json(rows) if given["output_format"] == "json" else to_csv(rows))
    else:
        for line in flags([own], 0.0, (), str):
            click.echo(line, err=True)
        click.echo(wrapped(f"World       {world_line([own])}", 12))
        for line in _lines(own):
            click.echo(line)
        click.echo()
        print_table(rows, COLUMNS)
        click.echo(
            "Ratios are of whole prompts; a dash: never. Every GPU has a link of its own to the one memory or drive."
        )


def _paths(
    catalog: Catalog, parts: Mapping[str, Any], links: Sequence[str], disks: Sequence[str]
) -> tuple[Deployment, dict[str, BreakEven]]:
    """Return the machine as it is unasked, and the paths by name."""
    from kvsweep.costs.deployment import deploy
    from kvsweep.costs.roofline import break_even

    own = deploy(catalog, parts)
    found = {}
    for key in links or (() if disks else LINKS):
        if key in catalog.links or links:
            catalog.part("links", key, "--link")
            found[key] = break_even(deploy(catalog, {**parts, "link": key}), DRAM)
    for key in disks or (() if links else (own.disk,)):
        catalog.part("disks", key, "--disk")
        found[key] = break_even(deploy(catalog, {**parts, "disk": key}), DISK)
    return own, found


def _row(name: str, path: BreakEven, own: Deployment) -> Row:
    from kvsweep.costs.roofline import kv_token_bytes

    token, pair = own.token_costs()

    def ratio(tokens: float) -> float:
        restored = path.setup_seconds + tokens * kv_token_bytes(own) / path.bytes_per_s
        return tokens * (token + 0.5 * pair * tokens) / restored

    return Row(name, path.bytes_per_s, path.setup_seconds, path.length, *(ratio(each) for each in LENGTHS))


def _lines(own: Deployment) -> list[str]:
    from kvsweep.costs.roofline import break_even_bandwidth, intensity, kv_token_bytes

    positions = (0, LENGTHS[2], LENGTHS[3])
    work = ", ".join(f"{each / 1e3:.4g}" for each in intensity(positions, own))
    rates = ", ".join(f"{each / 1e9:.3g}" for each in break_even_bandwidth(positions, own))
    made = f", made for {own.prefill.max_context:,.0f} tokens" if own.prefill is not None else ""
    each = f"{kv_token_bytes(own) / 1e3:.4g} kB of KV a token{made}"
    return [
        f"Model       {own.model} on {own.gpu_count:g} x {own.gpu}: {each}",
        f"Break-even  tokens 0, 32k and 128k: {work} kFLOP a byte; worth restoring above {rates} GB/s",
    ]


def check_alone(given: Mapping[str, Any], output: Path | None) -> None:
    """Raise InputError for an option of the restore roofline where no model is named."""
    chosen = {**given, "output": output}
    for name in ("gpu", "gpu_count", "link", "disk", "output"):
        if chosen[name] not in (None, ()):
            raise InputError(f"--{name.replace('_', '-')}: without --model; allowed: beside the model that is restored")
