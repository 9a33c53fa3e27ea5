"""What there is to choose from: parts, models, policies, fields with their ranges, defaults and limits."""

from __future__ import annotations

from typing import Any

from kvsweep.catalog.load import PART_KINDS, Catalog
from kvsweep.catalog.specs import USER_SOURCE, Entry
from kvsweep.costs.deployment import DEFAULT_MODEL, deploy
from kvsweep.costs.inputs import (
    HARDWARE_FIELDS,
    MODEL_FIELDS,
    NUMBER_FIELDS,
    PART_FIELDS,
    SIMULATE_DEFAULTS,
    SWEEP_DEFAULTS,
    WORKLOAD_FIELDS,
    Field,
)
from kvsweep.costs.placement import TIERS
from kvsweep.grid.axes import FORMS, PLACEMENTS
from kvsweep.policies.registry import PolicySet
from kvsweep.report.labels import label
from kvsweep.report.serve.limits import LIMITS
from kvsweep.results.analysis.ranking import simplest_first
from kvsweep.version import __version__

Values = dict[str, Any]

START: Values = {
    "stack": "h200", "model": "llama3-8b", "placement": "auto",
    "total_blocks": 150_000, "hit_ratio": 0.9, "request_rate": 0.05, "p95_seconds": 10.0,
}  # fmt: skip
"""Where the dashboard starts: three tiers in use, and policies that differ."""

_FIGURES = {
    "gpu": ("peak_flops", "hbm_bandwidth", "hbm_capacity"),
    "dram": ("dram_bandwidth", "dram_capacity"),
    "disk": ("disk_bandwidth", "disk_capacity"),
    "link": ("link_bandwidth",),
    "model": tuple(name for name in MODEL_FIELDS if name not in ("max_model_len", "step_tokens")),
}
"""Fields that each part sets, by the input that names the part."""

_GROUPS = {"hardware": HARDWARE_FIELDS, "model": MODEL_FIELDS, "workload": WORKLOAD_FIELDS}


def describe(catalog: Catalog, policies: PolicySet) -> Values:
    """Return the catalog as the API answers it; everything in it comes from the tables and files."""
    listed = list(policies.values())
    order = simplest_first((len(policy.modes) for policy in listed), (policy.order for policy in listed))
    return {
        "version": __version__,
        "catalog_sha256": catalog.sha256,
        "parts": {name: _entries(catalog, name, kind) for name, kind in PART_FIELDS.items()},
        "fields": [_field(field, group) for group, fields in _GROUPS.items() for field in fields.values()],
        "policies": [
            {
                "id": policy.name, "label": policy.label, "description": policy.description, "color": policy.color,
                "order": policy.order, "recomputes": policy.recomputes, "modes": list(policy.modes),
            }
            for policy in listed
        ],
        "simplest": [listed[index].name for index in order],
        "problems": list(policies.problems),
        "tiers": list(TIERS),
        "axis_forms": FORMS,
        "placements": PLACEMENTS,
        "defaults": {
            "simulate": dict(SIMULATE_DEFAULTS), "sweep": dict(SWEEP_DEFAULTS), "model": DEFAULT_MODEL,
            "dashboard": START,
        },
        "limits": LIMITS,
    }  # fmt: skip


def _entries(catalog: Catalog, name: str, kind: str) -> list[Values]:
    """Return the entries of a kind, each with the fields it sets: parts and counts of a stack, figures of a part."""
    found = []
    for key, entry in catalog.entries(kind).items():
        deployment = deploy(catalog, {name: key})
        sets = (*PART_KINDS, "gpu_count", "dram_count") if name == "stack" else _FIGURES[name]
        values = {each: getattr(deployment, each) for each in sets}
        about = {"key": key, "name": entry.name, "note": entry.note, "kind": entry.kind, "family": _family(entry)}
        found.append({**about, "sets": values})
    return found


def _family(entry: Entry) -> str:
    """Return the family of an entry, ``own`` for one of an overlay; empty for kinds without families."""
    return "own" if entry.source == USER_SOURCE else getattr(entry, "family", "")


def _field(field: Field, group: str) -> Values:
    return {
        "name": field.name, "label": label(field.name), "group": group, "unit": field.unit, "doc": field.doc,
        "lowest": field.lowest, "highest": field.highest, "open_below": field.open_below, "whole": field.whole,
        "allowed": NUMBER_FIELDS[field.name].allowed,
    }  # fmt: skip
