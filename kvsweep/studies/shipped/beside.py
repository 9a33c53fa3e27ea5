"""The studies of the paper as rows: means over seeds with intervals, the engine's figures, and what the paper found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from kvsweep.results.analysis.studies import over_seeds
from kvsweep.results.attrs import mapping_attr
from kvsweep.studies.shipped.published import DIFFER

KINDS = ("simulated", "measured")


def rows_of(ds: xr.Dataset, names: Sequence[str], at: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return what each model gave under each load and fidelity beside the paper's figures, all relative changes.

    ``NAME_interval`` is the half width of the 95 % interval over seeds, NaN of a single one.
    """
    said = mapping_attr(ds, "kvsweep_paper")
    found = {name: over_seeds(ds[name].sel(at)) for name in names}
    rows = []
    for size in ds["profile"].values.tolist():
        for load in ds["load"].values.tolist():
            for fidelity in ds["fidelity"].values.tolist():
                row = {"trace": str(ds.attrs["kvsweep_trace"]), "model": size, "load": load, "fidelity": fidelity}
                for name, (mean, half) in found.items():
                    place = {"profile": size, "load": load, "fidelity": fidelity}
                    row |= {name: float(mean.sel(place)), f"{name}_interval": float(half.sel(place))}
                    row |= {f"{name}_paper_{kind}": said[name].get(kind, {}).get(size) for kind in KINDS}
                rows.append(row)
    return rows


def differs(value: float, base: float) -> bool:
    """Return whether a figure of the engine differs from that of the paper's rules enough to be shown beside it."""
    return abs(value - base) > DIFFER * abs(base)
