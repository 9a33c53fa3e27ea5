"""Kernel databases: matrix products, attention and experts of many shapes, as AIConfigurator collects them (parquet).

They hold no normalisation, activation or sampling, no prompt with tokens before it and no mixed step: what is composed
of them says so. Times are in milliseconds there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvsweep.calibrate.columns import digest
from kvsweep.calibrate.kernels import Curve, KernelProfile
from kvsweep.catalog.specs import Model, Shape
from kvsweep.errors import InputError

MILLI = 1e-3
BEFORE = (0.0, 1024.0, 16384.0, 131072.0)
"""Tokens before a prompt for which attention is continued by its query-key pairs."""
MOST_DECODES = 256.0
DTYPE = "bfloat16"
FILES = {
    "dense": "gemm_perf.parquet",
    "attention": "context_attention_perf.parquet",
    "decode": "generation_attention_perf.parquet",
    "moe": "moe_perf.parquet",
}
Row = Mapping[str, Any]


def is_database(folder: Path) -> bool:
    """Return whether `folder` holds a kernel database somewhere below."""
    return any(folder.rglob(FILES["dense"]))


def read_database(folder: Path, model: Model, tp: int = 1, ep: int = 1) -> KernelProfile:
    """Return the kernels that `model` runs on one of `tp` ranks; raises InputError for shapes nobody measured."""
    if model.shape is None:
        raise InputError(f"--model: {model.key} has no shape in the catalog; allowed: a model that has")
    shape = model.shape
    if shape.kv_lora_rank:
        raise InputError(f"--model: {model.key} has latent attention; allowed: models with KV heads")
    found = {part: _file(folder, name) for part, name in FILES.items()}
    needed = ("dense", "attention", "decode", *(("moe",) if shape.experts else ()))
    for part in needed:
        if found[part] is None:
            raise InputError(f"{folder}: no {FILES[part]}; allowed: a folder with all of {', '.join(FILES.values())}")
    paths = {part: path for part, path in found.items() if path is not None and part in needed}
    products = _rows(paths["dense"], ("gemm_dtype", "m", "n", "k", "latency", "device"), gemm_dtype=DTYPE)
    dense, head = _dense(products, shape, tp)
    return KernelProfile(
        folder=folder,
        model=model.key,
        gpu=str(products[0]["device"]),
        tp=tp,
        dense=dense,
        per_sequence={"lm_head": head},
        attention=_attention(paths, shape, tp),
        moe=_moe(paths["moe"], shape, tp, ep) if shape.experts else {},
        files={"dense": FILES["dense"], "per_sequence": FILES["dense"], "moe": FILES["moe"],
               "attention": f"{FILES['attention']}, {FILES['decode']}"},
        sha256={"dense": digest(paths["dense"]), "per_sequence": digest(paths["dense"]),
                "attention": digest(paths["attention"], paths["decode"]),
                **({"moe": digest(paths["moe"])} if shape.experts else {})},
        measured_before=0.0,
        complete=False,
    )  # fmt: skip


def read_collectives(path: Path, ranks: int) -> tuple[list[float], list[float]]:
    """Return the all-reduce of `ranks` GPUs in a database: bytes, ascending, and seconds; captured where both are."""
    rows = _rows(path, ("message_size", "latency"), op_name="all_reduce", num_gpus=ranks)
    captured = [row for row in rows if str(row.get("backend", "")).endswith("graph")]
    half = [row for row in captured or rows if row.get("nccl_dtype", "half") == "half"]
    curve = _least(half, "message_size", None)
    sizes = sorted(size for size, _ in curve)
    return sizes, [curve[size, 0.0] for size in sizes]


def _file(folder: Path, name: str) -> Path | None:
    found = sorted(folder.rglob(name))
    if len(found) > 1:
        raise InputError(f"{folder}: {len(found)} files {name}; allowed: the folder of one GPU and engine version")
    return found[0] if found else None


def _rows(path: Path, columns: Sequence[str], **equal: object) -> list[Row]:
    """Return the rows of a parquet file whose fields equal those given."""
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise InputError("pyarrow is missing, which reads parquet; pip install 'kvsweep[data]'") from error
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not readable as parquet: {error}") from error
    missing = [name for name in (*columns, *equal) if name not in table.column_names]
    if missing:
        raise InputError(f"{path}: no column {missing[0]!r}; it has {', '.join(table.column_names)}")
    rows = [row for row in table.to_pylist() if all(row[name] == value for name, value in equal.items())]
    if not rows:
        wanted = ", ".join(f"{name} {value}" for name, value in equal.items())
        raise InputError(f"{path}: no rows of {wanted}; allowed: a shape that was measured")
    return rows


def _dense(products: Iterable[Row], shape: Shape, tp: int) -> tuple[dict[str, Curve], Curve]:
    """Return the matrix products of a layer and of the head, by tokens."""
    grid: dict[tuple[int, int], Curve] = {}
    for row in products:
        curve = grid.setdefault((row["n"], row["k"]), {})
        # Measured by several libraries: an engine takes the fastest.
        seconds = row["latency"] * MILLI
        curve[float(row["m"])] = min(seconds, curve.get(float(row["m"]), seconds))
    hidden, width = shape.hidden_size, shape.heads * shape.head_dim // tp
    sizes = {
        "qkv_proj": (width + 2 * max(shape.kv_heads // tp, 1) * shape.head_dim, hidden),
        "o_proj": (hidden, width),
    }
    if not shape.experts or shape.dense_layers:
        sizes["gate_up_proj"] = (2 * shape.intermediate_size // tp, hidden)
        sizes["down_proj"] = (hidden, shape.intermediate_size // tp)
    layers = {name: product_curve(grid, n, k) for name, (n, k) in sizes.items()}
    head = product_curve(grid, shape.vocab // tp, hidden)
    return layers, {m: seconds for m, seconds in head.items() if m <= MOST_DECODES}


def product_curve(grid: Mapping[tuple[int, int], Curve], n: int, k: int) -> Curve:
    """Return the time of an (m x k)(k x n) product by m [s], in proportion to n·k between the sizes measured.

    The nearest measured product stands in, scaled by its weights: memory and arithmetic both grow with n·k.
    """
    (near_n, near_k), curve = min(grid.items(), key=lambda item: abs(item[0][0] - n) / n + abs(item[0][1] - k) / k)
    scale = n * k / (near_n * near_k)
    return {m: seconds * scale for m, seconds in curve.items()}


def _attention(paths: Mapping[str, Path], shape: Shape, tp: int) -> dict[tuple[float, float, float, float], float]:
    """Return attention by (chunk, before, decodes, context): prompt and decode kernels added.

    A prompt after others' tokens takes its own time, in proportion to its query-key pairs beyond the least time.
    """
    heads, kv_heads = shape.heads // tp, max(shape.kv_heads // tp, 1)
    same = {"num_heads": heads, "head_dim": shape.head_dim, "kv_cache_dtype": DTYPE}
    columns = ("batch_size", "isl", "step", "latency", "num_key_value_heads")
    prompts = _least(_windowless(_rows(paths["attention"], columns, batch_size=1, **same), kv_heads), "isl", None)
    decodes = _least(_windowless(_rows(paths["decode"], columns, **same), kv_heads), "batch_size", "step")
    if len(prompts) < 2 or len(decodes) < 4:
        raise InputError(f"{paths['attention'].parent}: {heads} heads and {kv_heads} KV heads were not measured")
    least = min(prompts.values())
    sizes = sorted({n for n, _ in decodes if n <= MOST_DECODES})
    # The largest batches were measured at short contexts only; gaps are continued from smaller ones.
    counted = Counter(k for n, k in decodes if n in sizes)
    contexts = sorted(k for k, count in counted.items() if 2 * count >= len(sizes))
    found: dict[tuple[float, float, float, float], float] = {}
    for (chunk, _), seconds in {(0.0, 0.0): 0.0, **prompts}.items():
        for before in BEFORE if chunk else (0.0,):
            grown = least + max(seconds - least, 0.0) * (1.0 + 2.0 * before / chunk) if chunk else 0.0
            if chunk:
                found[chunk, before, 0.0, 0.0] = grown
            for n in sizes:
                for k in contexts:
                    if (n, k) in decodes:
                        found[chunk, before, n, k] = grown + decodes[n, k]
    return found


def _windowless(rows: Iterable[Row], kv_heads: int) -> list[Row]:
    """Return the rows of full attention; some files have no window column."""
    return [row for row in rows if not row.get("window_size") and row["num_key_value_heads"] == kv_heads]


def _least(rows: Iterable[Row], first: str, second: str | None) -> dict[tuple[float, float], float]:
    """Return the least time [s] by one or two fields: an engine takes the fastest kernel."""
    found: dict[tuple[float, float], float] = {}
    for row in rows:
        key = float(row[first]), float(row[second]) if second else 0.0
        seconds = row["latency"] * MILLI
        found[key] = min(seconds, found.get(key, seconds))
    return found


def _moe(path: Path, shape: Shape, tp: int, ep: int) -> dict[tuple[float, float], float]:
    """Return the experts' time by (tokens, experts of a rank), evenly routed."""
    rows = _rows(
        path, ("num_tokens", "latency"), moe_dtype=DTYPE, hidden_size=shape.hidden_size, topk=shape.experts_per_token,
        inter_size=shape.moe_intermediate_size, num_experts=shape.experts, moe_tp_size=tp if ep == 1 else 1,
        moe_ep_size=ep, distribution="balanced",
    )  # fmt: skip
    return {(tokens, shape.experts / ep): seconds for (tokens, _), seconds in _least(rows, "num_tokens", None).items()}
