"""Reading the parquet files of a kernel database: the rows that fit, the least times of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvsweep.errors import InputError, shown

Row = Mapping[str, Any]
MILLI = 1e-3


def read_table(path: Path, columns: Sequence[str], **equal: object) -> list[Row]:
    """Return the rows of a parquet file whose fields equal those given; raises InputError for none.

    The numbers of `columns` and of latency [ms] must be finite and not negative.
    """
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise InputError("pyarrow is missing, which reads parquet; pip install 'kvsweep[data]'") from error
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not readable as parquet: {str(error).splitlines()[0]}") from error
    missing = [name for name in (*columns, *equal) if name not in table.column_names]
    if missing:
        raise InputError(f"{path}: no column {missing[0]!r}; it has {', '.join(table.column_names)}")
    rows = [row for row in table.to_pylist() if all(row[name] == value for name, value in equal.items())]
    if not rows:
        wanted = ", ".join(f"{name} {value}" for name, value in equal.items())
        raise InputError(f"{path}: no rows of {wanted}; allowed: a shape that was measured")
    for row in rows:
        for name in columns:
            if not isinstance(row[name], str) and not _is_size(row[name]):
                raise InputError(f"{path}: {name}: {shown(row[name])}; allowed: a number from 0 on")
        if "latency" in columns and row["latency"] == 0:
            raise InputError(f"{path}: latency: 0 ms; allowed: more")
    return rows


def _is_size(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value < math.inf


def least(rows: Iterable[Row], first: str, second: str | None = None) -> dict[tuple[float, float], float]:
    """Return the least time [s] by one or two fields: an engine takes the fastest kernel."""
    found: dict[tuple[float, float], float] = {}
    for row in rows:
        key = float(row[first]), float(row[second]) if second else 0.0
        seconds = row["latency"] * MILLI
        found[key] = min(seconds, found.get(key, seconds))
    return found
