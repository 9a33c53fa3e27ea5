"""Times of collective operations between ranks by the bytes they move: all-reduces, and the exchange of tokens."""

from __future__ import annotations

from pathlib import Path

from kvsweep.calibrate.curves import Floats, robust_curve
from kvsweep.calibrate.kernels.profile import Curve
from kvsweep.calibrate.sources.parquet import least, read_table
from kvsweep.calibrate.sources.rows import read_curve
from kvsweep.errors import InputError, shown

ALL_REDUCE = ("all_reduce",)
EXCHANGE = ("all_gather", "reduce_scatter")
"""What data-parallel ranks that share experts do in each layer: gather all tokens, and sum and scatter the results."""
BYTES = {"bfloat16": 2.0, "half": 2.0, "float16": 2.0, "float": 4.0, "float32": 4.0, "int8": 1.0, "fp8": 1.0}
DTYPES = ("allreduce_dtype", "nccl_dtype")
HALF = 2.0
"""Bytes of the numbers that ranks exchange, bf16."""


def read_collective(path: Path, operations: tuple[str, ...], ranks: int) -> Curve:
    """Return the time [s] of `operations` of `ranks` ranks one after the other, by the bytes of all ranks' part.

    A CSV of bytes,seconds states it; a database (.parquet) counts numbers of some type, of which those of two bytes are
    taken, captured in a graph where both are there.
    """
    if path.suffix != ".parquet":
        return read_curve(path)
    curves = [_measured(path, operation, ranks) for operation in operations]
    sizes = set.intersection(*(set(curve) for curve in curves))
    if not sizes:
        raise InputError(f"{path}: no size of all of {', '.join(operations)}; allowed: sizes measured for each")
    return {size: sum(curve[size] for curve in curves) for size in sorted(sizes)}


def _measured(path: Path, operation: str, ranks: int) -> Curve:
    rows = read_table(path, ("message_size", "latency"), op_name=operation, num_gpus=ranks)
    captured = [row for row in rows if str(row.get("backend", "")).endswith("graph")]
    dtype = next((name for name in DTYPES if name in rows[0]), None)
    if dtype is None:
        raise InputError(f"{path}: no column {' or '.join(DTYPES)}; without it bytes are not known")
    unknown = next((row[dtype] for row in rows if row[dtype] not in BYTES), None)
    if unknown is not None:
        raise InputError(f"{path}: {dtype}: {shown(unknown)}; allowed: {', '.join(BYTES)}")
    half = [row for row in captured or rows if BYTES[row[dtype]] == HALF]
    if not half:
        raise InputError(f"{path}: {operation} of {ranks}: no rows of a type of two bytes; allowed: half, bfloat16")
    return {size * HALF: seconds for (size, _), seconds in least(half, "message_size").items()}


def collective_curve(points: Curve) -> tuple[Floats, Floats]:
    """Return (bytes, seconds) of the monotone curve through a collective's rows: more bytes never take less.

    The curve of least absolute error, so that a single row far above its neighbours moves nothing but itself.
    """
    return robust_curve(points)
