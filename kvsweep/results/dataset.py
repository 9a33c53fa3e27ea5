"""The one builder of sweep Datasets: dims, coordinates, attributes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import xarray as xr

import kvsweep.results.accessor  # noqa: F401  (registers ds.kvsweep)
from kvsweep.errors import InputError, shown
from kvsweep.results.attrs import to_attrs
from kvsweep.results.names import attributes
from kvsweep.results.netcdf import SCHEMA_VERSION
from kvsweep.version import __version__

REFERENCES = "analytic model: KVC-TierSim, HotStorage '26, doi 10.1145/3837053.3837336"
ASSUMPTIONS = (
    "Cost model linear: recompute is 2 FLOP a parameter and token (no attention term), restore is bytes over "
    "bandwidth, tier then link, and both overlap fully. The latency target is compared with the time of a lone "
    "request: it is no percentile of a queue."
)


def sweep_dataset(
    variables: Mapping[str, tuple[Sequence[str], Any]],
    coords: Mapping[str, tuple[Sequence[str], Any]],
    attrs: Mapping[str, Any],
    squeeze: bool,
) -> xr.Dataset:
    """Return a Dataset of `variables` and `coords`, each (dims, values), with units, meanings and CF attributes.

    With `squeeze`, dims of length 1 other than ``policy`` become scalar coordinates.
    """
    ds = xr.Dataset(
        {name: xr.Variable(tuple(dims), values, attributes(name)) for name, (dims, values) in variables.items()},
        {name: xr.Variable(tuple(dims), values, attributes(name)) for name, (dims, values) in coords.items()},
    )
    if squeeze:
        ds = ds.squeeze([dim for dim, length in ds.sizes.items() if length == 1 and dim != "policy"])
    return ds.assign_attrs(to_attrs(common_attrs() | dict(attrs)))


def common_attrs() -> dict[str, Any]:
    """Return the attributes every file carries."""
    return {
        "Conventions": "CF-1.11",
        "source": f"kvsweep {__version__}",
        "references": REFERENCES,
        "comment": ASSUMPTIONS,
        "kvsweep_schema_version": SCHEMA_VERSION,
    }


def timestamp() -> str:
    """Return the time of creation in ISO 8601 UTC; ``SOURCE_DATE_EPOCH`` fixes it for reproducible files.

    Raises InputError where that variable is no time.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        moment = datetime.fromtimestamp(int(epoch), UTC) if epoch is not None else datetime.now(UTC)
    except (ValueError, OverflowError, OSError):
        raise InputError(f"SOURCE_DATE_EPOCH: {shown(epoch)}; allowed: seconds since 1970") from None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def text_array(values: Sequence[str]) -> np.ndarray[Any, Any]:
    """Return names and labels as NetCDF can hold them."""
    return np.array(list(values), dtype=np.str_)
