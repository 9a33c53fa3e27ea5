"""Comparison of the data-sheet rows with the fact tables they were made from (``$KVSWEEP_DATA/catalog/*.csv``)."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path

from kvsweep.catalog import models
from kvsweep.catalog.load import Catalog
from kvsweep.catalog.specs import Entry, Shape

GPU = {
    "bf16_flops_dense": "compute.bf16_flops",
    "fp16_flops_dense": "compute.fp16_flops",
    "fp8_flops_dense": "compute.fp8_flops",
    "int8_ops_dense": "compute.int8_ops",
    "fp4_flops_dense": "compute.fp4_flops",
    "compute_kind": "compute.kind",
    "measured_bf16_flops": "measured_compute.bf16_flops",
    "measured_fp8_flops": "measured_compute.fp8_flops",
    "measured_fp4_flops": "measured_compute.fp4_flops",
    "measured_kind": "measured_compute.kind",
    "hbm_bandwidth": "memory.bytes_per_s",
    "hbm_capacity": "memory.capacity_bytes",
    "memory_kind": "memory.kind",
    "hbm_capacity_visible": "visible_memory.capacity_bytes",
    "measured_hbm_bandwidth": "measured_memory.bytes_per_s",
    "measured_hbm_kind": "measured_memory.kind",
    "host_link": "host_link.path",
    "host_link_bytes_per_s": "host_link.bytes_per_s",
    "host_kind": "host_link.kind",
    "nvlink_bytes_per_s": "peer_link.bytes_per_s",
    "tdp_watts": "power.tdp_watts",
    "power_kind": "power.kind",
    "release_year": "release.year",
    "release_kind": "release.kind",
}
STORAGE = {
    "class": "category",
    "theoretical_bytes_per_s": "theoretical.bytes_per_s",
    "theoretical_kind": "theoretical.kind",
    "read_bytes_per_s": "rates.read_bytes_per_s",
    "write_bytes_per_s": "rates.write_bytes_per_s",
    "bandwidth_kind": "rates.kind",
    "read_latency_s": "latency.read_s",
    "write_latency_s": "latency.write_s",
    "latency_kind": "latency.kind",
    "capacity_bytes": "size.capacity_bytes",
    "capacity_kind": "size.kind",
}
DRIVE = STORAGE | {
    "random_read_iops": "read_operations.per_s",
    "iops_kind": "read_operations.kind",
    "random_write_iops": "write_operations.per_s",
    "write_iops_kind": "write_operations.kind",
    "endurance_tbw_bytes": "endurance.written_bytes",
    "endurance_dwpd": "endurance.drive_writes_per_day",
    "warranty_years": "endurance.warranty_years",
    "endurance_kind": "endurance.kind",
}
LINK = {
    "theoretical_bytes_per_s": "theoretical.bytes_per_s",
    "theoretical_kind": "theoretical.kind",
    "effective_bytes_per_s_low": "effective.low_bytes_per_s",
    "effective_bytes_per_s": "effective.bytes_per_s",
    "effective_bytes_per_s_high": "effective.high_bytes_per_s",
    "effective_kind": "effective.kind",
    "latency_s": "latency.seconds",
    "latency_kind": "latency.kind",
}
MODEL = {
    "params_total": "weights.total",
    "params_active": "weights.active",
    "params_active_blocks": "weights.active_blocks",
    "params_kind": "weights.kind",
}
SHAPE_COLUMNS = """
architecture attention layers layers_full_attention layers_window layers_linear window hidden_size heads kv_heads
head_dim v_head_dim kv_lora_rank rope_head_dim intermediate_size moe_intermediate_size experts experts_per_token
shared_experts dense_layers vocab max_context
"""
MODEL |= {name: f"shape.{name}" for name in SHAPE_COLUMNS.split()}
KV_BYTES = {
    "kv_bytes_per_token_bf16": models.kv_bytes_per_token,
    "kv_fixed_bytes_per_sequence": models.kv_fixed_bytes_per_sequence,
    "kv_bytes_per_token_all_layers": models.kv_bytes_per_token_all_layers,
}


def differences(catalog: Catalog, tables: Path) -> list[str]:
    """Return one line for every cell of the tables that the catalog lacks or holds otherwise."""
    memories = {**catalog.drams, **catalog.disks}
    found = list(_compared("gpus", tables, catalog.gpus, GPU))
    found += _compared("links", tables, catalog.links, LINK)
    found += _compared("storage", tables, {k: e for k, e in memories.items() if k in catalog.drams}, STORAGE, "dram")
    found += _compared("storage", tables, {k: e for k, e in memories.items() if k in catalog.disks}, DRIVE, "")
    found += _compared("models", tables, catalog.models, MODEL)
    for row in _rows(tables, "models"):
        shape = catalog.models[row["key"]].shape
        assert isinstance(shape, Shape)
        found += [f"{row['key']}: {name}" for name, of in KV_BYTES.items() if of(shape) != float(row[name])]
    return found


def _rows(tables: Path, name: str) -> list[dict[str, str]]:
    with (tables / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _compared(
    name: str, tables: Path, entries: Mapping[str, Entry], columns: Mapping[str, str], part: str | None = None
) -> Iterator[str]:
    for row in _rows(tables, name):
        if part is not None and row["class"].startswith("dram") != (part == "dram"):
            continue
        entry = entries.get(row["key"])
        if entry is None:
            yield f"{name}.csv: {row['key']} missing"
            continue
        for column, path in ({"name": "name", "kind": "kind"} | columns).items():
            if not _equal(row[column], _at(entry, path)):
                yield f"{name}.csv: {row['key']}: {column} is {row[column]}, catalog has {_at(entry, path)}"


def _at(entry: Entry, path: str) -> object:
    try:
        return attrgetter(path)(entry)
    except AttributeError:  # a group that is None
        return None


def _equal(cell: str, value: object) -> bool:
    if cell == "" or value is None:
        return cell == "" and value in (None, 0)
    if isinstance(value, str):
        return cell == value
    return math.isclose(float(cell), float(str(value)), rel_tol=1e-12)
