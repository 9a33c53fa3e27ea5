"""A Dataset as CSV in long form: a row for each policy and point, written in chunks."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.results.files import replacing

MAX_ROWS = 1_000_000
"""Rows past which NetCDF serves better: CSV takes ten times the space and a hundred times as long to read."""

_CHUNK_ROWS = 1 << 16


def write_csv(ds: xr.Dataset, axes: Sequence[str], path: Path) -> None:
    """Write the rows of `csv_rows` to `path`, whole or not at all."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(csv_rows(ds, axes))


def csv_rows(ds: xr.Dataset, axes: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the header and then the rows of a sweep or reduction: `axes` first, then every variable.

    Axes that a reduction did not keep are left out. Numbers are the shortest that read back as they are stored;
    a cell is empty where a number is not finite.
    """
    variables = [ds[name] for name in ds.data_vars]
    coords = [ds[name] for name in axes if name in ds.coords]
    yield [str(column.name) for column in (*coords, *variables)]
    dims, shape = variables[0].dims, variables[0].shape
    labels = [_texts(coord.values) for coord in coords]
    flat = [variable.transpose(*dims).values.reshape(-1) for variable in variables]
    for start in range(0, flat[0].size, _CHUNK_ROWS):
        part = slice(start, min(start + _CHUNK_ROWS, flat[0].size))
        index = dict(zip(dims, np.unravel_index(np.arange(part.start, part.stop), shape), strict=True))
        columns = [
            label[tuple(index[dim] for dim in coord.dims)] if coord.ndim else np.full(part.stop - part.start, label)
            for coord, label in zip(coords, labels, strict=True)
        ]
        columns += [_meanings(variable, values[part]) for variable, values in zip(variables, flat, strict=True)]
        yield from zip(*(column.tolist() for column in columns), strict=True)


def _meanings(variable: xr.DataArray, values: NDArray[Any]) -> NDArray[np.str_]:
    """Return `values` as text, modes of decision by their label."""
    if variable.name == "decision_mode":
        labels: NDArray[np.str_] = np.array(variable.attrs["flag_meanings"].split())
        return np.take(labels, values)
    return _texts(values)


def _texts(values: NDArray[Any]) -> NDArray[np.str_]:
    texts: NDArray[np.str_] = values.astype(np.str_)
    if values.dtype.kind == "f":
        texts[~np.isfinite(values)] = ""
    return texts
