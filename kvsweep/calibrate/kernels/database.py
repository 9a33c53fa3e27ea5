"""Kernel databases: matrix products, attention and experts of many shapes, as AIConfigurator collects them (parquet).

They hold no normalisation, activation or sampling, no prompt with tokens before it and no mixed step: what is composed
of them says so. Times are in milliseconds there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kvsweep.calibrate.curves import positive
from kvsweep.calibrate.kernels.latent import latent_times
from kvsweep.calibrate.kernels.profile import Curve, KernelProfile
from kvsweep.calibrate.sources.columns import digest
from kvsweep.calibrate.sources.parquet import MILLI, Row, least, read_table
from kvsweep.catalog.specs import Model, Shape
from kvsweep.errors import InputError

BEFORE = (0.0, 1024.0, 16384.0, 131072.0)
"""Tokens before a prompt for which attention is continued by its query-key pairs."""
MOST_DECODES = 256.0
LEAST_PROMPTS, LEAST_DECODES = 3, 4
"""Rows below which a model's attention counts as not measured."""
PLAIN = "bfloat16"
"""Type of KV, of the head and of the router, whatever the type of the other weights."""
DTYPES = {PLAIN: 2.0, "fp8_block": 1.0}
"""Types of the weights of a layer, as the database names them, and their bytes."""
FILES = {
    "dense": "gemm_perf.parquet",
    "attention": "context_attention_perf.parquet",
    "decode": "generation_attention_perf.parquet",
    "moe": "moe_perf.parquet",
}
LATENT_FILES = {"attention": "mla_context_module_perf.parquet", "decode": "mla_generation_module_perf.parquet"}
APART = "prompt and decode kernels added; tokens before a prompt by its query-key pairs, not measured"
MODULES = "latent attention with its projections, prompt and decode modules added; tokens before a prompt not measured"
MIXED = dict[tuple[float, float, float, float], float]


@dataclass(frozen=True, slots=True)
class Ranks:
    """How the ranks share a model: tensor-parallel degree, ranks that share the experts, type of the weights."""

    tp: int = 1
    ep: int = 1
    dtype: str = PLAIN


def is_database(folder: Path) -> bool:
    """Return whether `folder` holds a kernel database somewhere below."""
    return any(folder.rglob(FILES["dense"]))


def read_database(folder: Path, model: Model, ranks: Ranks | None = None) -> KernelProfile:
    """Return the kernels that `model` runs on one of its ranks; raises InputError for what nobody measured."""
    ranks = ranks or Ranks()
    shape = _shape(model, ranks)
    paths = _paths(folder, shape)
    grid = _products(paths["dense"], ranks.dtype)
    plain = grid if ranks.dtype == PLAIN else _products(paths["dense"], PLAIN)
    attention = _latent(paths, model, ranks) if shape.kv_lora_rank else _attention(paths, shape, ranks.tp)
    dense, head = _dense(grid.curves, plain.curves, shape, ranks.tp)
    return KernelProfile(
        folder=folder,
        model=model.key,
        gpu=grid.gpu,
        tp=ranks.tp,
        dense=dense,
        per_sequence={"lm_head": head},
        attention=attention,
        moe=_moe(paths["moe"], shape, ranks) if shape.experts else {},
        files={"dense": FILES["dense"], "per_sequence": FILES["dense"], "moe": FILES["moe"],
               "attention": f"{paths['attention'].name}, {paths['decode'].name}"},
        sha256={"dense": digest(paths["dense"]), "per_sequence": digest(paths["dense"]),
                "attention": digest(paths["attention"], paths["decode"]),
                **({"moe": digest(paths["moe"])} if shape.experts else {})},
        measured_before=0.0,
        complete=False,
        attention_boundary=MODULES if shape.kv_lora_rank else APART,
        weight_bytes=DTYPES[ranks.dtype],
    )  # fmt: skip


def _shape(model: Model, ranks: Ranks) -> Shape:
    """Return the shape of a model that these ranks can share; raises InputError for another."""
    if model.shape is None:
        raise InputError(f"--model: {model.key} has no shape in the catalog; allowed: a model that has")
    if model.shape.heads % ranks.tp:
        raise InputError(f"--tp: {ranks.tp} ranks do not share the {model.shape.heads} heads of {model.key} evenly")
    return model.shape


def _paths(folder: Path, shape: Shape) -> dict[str, Path]:
    """Return the files a model needs; raises InputError for one that is not there."""
    names = {**FILES, **(LATENT_FILES if shape.kv_lora_rank else {})}
    needed = {part: name for part, name in names.items() if part != "moe" or shape.experts}
    paths = {}
    for part, name in needed.items():
        found = sorted(folder.rglob(name))
        if len(found) > 1:
            raise InputError(f"{folder}: {len(found)} files {name}; allowed: the folder of one GPU and engine version")
        if not found:
            what = "latent attention with its projections" if name in LATENT_FILES.values() else "this model"
            raise InputError(
                f"{folder}: no {name}, which {what} needs; allowed: a folder with {', '.join(needed.values())}"
            )
        paths[part] = found[0]
    return paths


class _Grid(NamedTuple):
    """Matrix products measured on a GPU: times [s] by rows m, of each (n, k)."""

    gpu: str
    curves: dict[tuple[int, int], Curve]


def _products(path: Path, dtype: str) -> _Grid:
    rows = read_table(path, ("m", "n", "k", "latency", "device"), gemm_dtype=dtype)
    curves: dict[tuple[int, int], Curve] = {}
    for row in rows:
        curve = curves.setdefault((row["n"], row["k"]), {})
        # Measured by several libraries: an engine takes the fastest.
        seconds = row["latency"] * MILLI
        curve[float(row["m"])] = min(seconds, curve.get(float(row["m"]), seconds))
    return _Grid(str(rows[0]["device"]), curves)


def _dense(
    grid: Mapping[tuple[int, int], Curve], plain: Mapping[tuple[int, int], Curve], shape: Shape, tp: int
) -> tuple[dict[str, Curve], Curve]:
    """Return the matrix products of a layer and of the head, by tokens; those of latent attention are in its module."""
    hidden, width = shape.hidden_size, shape.heads * shape.head_dim // tp
    sizes = {}
    if not shape.kv_lora_rank:
        sizes["qkv_proj"] = (width + 2 * max(shape.kv_heads // tp, 1) * shape.head_dim, hidden)
        sizes["o_proj"] = (hidden, width)
    if not shape.experts or shape.dense_layers:
        sizes["gate_up_proj"] = (2 * shape.intermediate_size // tp, hidden)
        sizes["down_proj"] = (hidden, shape.intermediate_size // tp)
    if shape.shared_experts:
        shared = shape.shared_experts * shape.moe_intermediate_size // tp
        sizes["shared_gate_up_proj"], sizes["shared_down_proj"] = (2 * shared, hidden), (hidden, shared)
    layers = {name: product_curve(grid, n, k) for name, (n, k) in sizes.items()}
    if shape.experts:
        layers["router"] = product_curve(plain, shape.experts, hidden)
    head = product_curve(plain, shape.vocab // tp, hidden)
    return layers, {m: seconds for m, seconds in head.items() if m <= MOST_DECODES}


def product_curve(grid: Mapping[tuple[int, int], Curve], n: int, k: int) -> Curve:
    """Return the time of an (m x k)(k x n) product by m [s], in proportion to n·k between the sizes measured.

    The nearest measured product stands in, scaled by its weights: memory and arithmetic both grow with n·k.
    """
    (near_n, near_k), curve = min(grid.items(), key=lambda item: abs(item[0][0] - n) / n + abs(item[0][1] - k) / k)
    scale = n * k / (near_n * near_k)
    return {m: seconds * scale for m, seconds in curve.items()}


def _attention(paths: Mapping[str, Path], shape: Shape, tp: int) -> MIXED:
    """Return attention by (chunk, before, decodes, context): prompt and decode kernels added."""
    heads, kv_heads = shape.heads // tp, max(shape.kv_heads // tp, 1)
    same = {"num_heads": heads, "head_dim": shape.head_dim, "kv_cache_dtype": PLAIN}
    columns = ("batch_size", "isl", "step", "latency", "num_key_value_heads")
    prompts = least(_windowless(read_table(paths["attention"], columns, batch_size=1, **same), kv_heads), "isl")
    decodes = least(_windowless(read_table(paths["decode"], columns, **same), kv_heads), "batch_size", "step")
    if len(prompts) < LEAST_PROMPTS or len(decodes) < LEAST_DECODES:
        raise InputError(f"{paths['attention'].parent}: {heads} heads and {kv_heads} KV heads were not measured")
    return _mixed({tokens: seconds for (tokens, _), seconds in prompts.items()}, decodes)


def _latent(paths: Mapping[str, Path], model: Model, ranks: Ranks) -> MIXED:
    prompts, decodes = latent_times(paths, model, ranks.tp, ranks.dtype)
    if len(prompts) < LEAST_PROMPTS or len(decodes) < LEAST_DECODES:
        raise InputError(f"{paths['attention'].parent}: too few rows of {model.key} on {ranks.tp} ranks")
    return _mixed(prompts, decodes)


def _mixed(prompts: Curve, decodes: Mapping[tuple[float, float], float]) -> MIXED:
    """Return steps of a lone prompt, after tokens or not, and decodes by (requests, context), added."""
    sizes = sorted({n for n, _ in decodes if n <= MOST_DECODES})
    # The largest batches were measured at short contexts only; gaps are continued from smaller ones.
    counted = Counter(k for n, k in decodes if n in sizes)
    contexts = sorted(k for k, count in counted.items() if 2 * count >= len(sizes))
    found: MIXED = {(0.0, 0.0, n, k): decodes[n, k] for n in sizes for k in contexts if (n, k) in decodes}
    for before in BEFORE:
        for chunk, seconds in after_tokens(prompts, before, decodes).items():
            found[chunk, before, 0.0, 0.0] = seconds
            for n in sizes:
                found |= {(chunk, before, n, k): seconds + decodes[n, k] for k in contexts if (n, k) in decodes}
    return found


def after_tokens(prompts: Curve, before: float, decodes: Mapping[tuple[float, float], float]) -> Curve:
    """Return the time [s] of prompts, by their tokens, after `before` others, which nobody measured.

    Fitted to the prompts is a start, a share a token and one a query-key pair; the pairs with the tokens before are
    added. It takes at least what the smallest batch of decodes over as many tokens does, which reads their KV once.
    """
    tokens = np.array(sorted(prompts))
    seconds = np.array([prompts[at] for at in tokens.tolist()])
    pair = positive(np.stack([np.ones(len(tokens)), tokens, tokens**2 / 2.0], axis=1), seconds)[2]
    fewest = min(n for n, _ in decodes)
    contexts = sorted(k for n, k in decodes if n == fewest)
    reading = np.interp(before, contexts, [decodes[fewest, k] for k in contexts]) if before else 0.0
    grown = np.maximum(seconds + pair * tokens * before, reading)
    return dict(zip(tokens.tolist(), grown.tolist(), strict=True))


def _windowless(rows: Iterable[Row], kv_heads: int) -> list[Row]:
    """Return the rows of full attention; some files have no window column."""
    return [row for row in rows if not row.get("window_size") and row["num_key_value_heads"] == kv_heads]


def _moe(path: Path, shape: Shape, ranks: Ranks) -> dict[tuple[float, float], float]:
    """Return the experts' time by (tokens, experts of a rank), evenly routed."""
    rows = read_table(
        path, ("num_tokens", "latency"), moe_dtype=ranks.dtype, hidden_size=shape.hidden_size,
        topk=shape.experts_per_token, inter_size=shape.moe_intermediate_size, num_experts=shape.experts,
        moe_tp_size=ranks.tp if ranks.ep == 1 else 1, moe_ep_size=ranks.ep, distribution="balanced",
    )  # fmt: skip
    return {(tokens, shape.experts / ranks.ep): seconds for (tokens, _), seconds in least(rows, "num_tokens").items()}
