"""What a step of a model is made of: which profiled layers run how often, mixtures of experts and all-reduces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvsweep.calibrate.kernels.profile import KernelProfile
from kvsweep.catalog.specs import Model, Shape
from kvsweep.errors import InputError

Floats = NDArray[np.float64]

PER_LAYER = {"layernorm": 2, "qkv_proj": 1, "qk_norm": 2, "rotary_emb": 1, "o_proj": 1}
"""Layers of every block, with how often they run; those that a profile lacks do not run in its model."""
DENSE_FEED_FORWARD = {"gate_up_proj": 1, "act_fn": 1, "down_proj": 1}
SHARED = {"shared_gate_up_proj": 1, "shared_down_proj": 1}
"""Layers of experts that every token passes, beside those it is routed to."""
ROUTING = {"router": 1, **SHARED}
ONCE = {"embedding": 1, "final_layernorm": 1}
NEEDED = ("layernorm", "qkv_proj", "o_proj", "embedding", "final_layernorm")
HEAD = ("lm_head", "sampler")
ACTIVATION_BYTES = 2.0
"""Bytes of a number that ranks exchange, bf16."""
ALL_REDUCES = 2
"""All-reduces of a layer under tensor parallelism: after attention and after the feed-forward part."""


@dataclass(frozen=True, slots=True)
class Parallel:
    """How a worker's ranks share the model: `ep` ranks share the experts of `dp` groups of requests.

    `allreduce` is the time of an all-reduce [s] by its bytes, for tensor parallelism; `exchange` that of gathering the
    tokens of all groups at the experts and bringing back the results, by the bytes of all of them.
    """

    dp: int = 1
    ep: int = 1
    allreduce: tuple[Floats, Floats] | None = None
    exchange: tuple[Floats, Floats] | None = None


def token_seconds(kernels: KernelProfile, model: Model, tokens: Floats, parallel: Parallel) -> Floats:
    """Return the time [s] of everything but attention and head, all layers, at steps of `tokens` tokens a rank.

    A step waits for the slowest rank, so ranks of one profile run alike.
    """
    shape = _shape(model)
    missing = [name for name in NEEDED if name not in kernels.dense and kernels.complete]
    if missing:
        raise InputError(f"{kernels.folder}: dense.csv: no layer {missing[0]!r}; it has {', '.join(kernels.dense)}")
    total = np.zeros_like(tokens)
    for name, count in PER_LAYER.items():
        total += shape.layers * count * _layer(kernels, name, tokens)
    moe_layers = shape.layers - shape.dense_layers if shape.experts else 0
    for name, count in DENSE_FEED_FORWARD.items():
        if shape.layers > moe_layers and name not in kernels.dense and kernels.complete:
            raise InputError(f"{kernels.folder}: dense.csv: no layer {name!r}; the model has dense layers")
        total += (shape.layers - moe_layers) * count * _layer(kernels, name, tokens)
    if moe_layers:
        for name, count in ROUTING.items():
            if name in SHARED and shape.shared_experts and name not in kernels.dense:
                raise InputError(f"{kernels.folder}: dense.csv: no layer {name!r}; the model has shared experts")
            total += moe_layers * count * _layer(kernels, name, tokens)
        total += moe_layers * expert_seconds(kernels, shape, tokens, parallel)
        total += moe_layers * _exchange_seconds(shape, tokens, parallel)
    for name, count in ONCE.items():
        total += count * _layer(kernels, name, tokens)
    return total + _allreduce_seconds(kernels, shape, tokens, parallel)


def kernel_count(kernels: KernelProfile, model: Model) -> int:
    """Return how many profiled kernels a layer runs, attention included."""
    names = [*PER_LAYER, *DENSE_FEED_FORWARD]
    counts = {**PER_LAYER, **DENSE_FEED_FORWARD}
    return 1 + sum(counts[name] for name in names if name in kernels.dense) + bool(kernels.moe)


def head_seconds(kernels: KernelProfile, sequences: Floats) -> Floats:
    """Return the time [s] of head and sampler at `sequences` requests of a step."""
    missing = [name for name in HEAD if name not in kernels.per_sequence and kernels.complete]
    if missing:
        raise InputError(f"{kernels.folder}: per_sequence.csv: no layer {missing[0]!r}; allowed: {', '.join(HEAD)}")
    total = np.zeros_like(sequences)
    for name in HEAD:
        if name in kernels.per_sequence:
            total += _at(kernels.per_sequence[name], sequences)
    return total


def expert_seconds(kernels: KernelProfile, shape: Shape, tokens: Floats, parallel: Parallel) -> Floats:
    """Return the time [s] of the experts of one layer and rank.

    The tokens of all `dp` groups reach each of the `ep` ranks, which holds experts/ep of them. With k of E experts a
    token, E/ep·(1 − (1 − k/E)^tokens) of a rank's experts have work, on the mean of even routing.
    """
    if not kernels.moe:
        raise InputError(f"{kernels.folder}: no moe.csv, which a mixture of experts needs")
    if shape.experts % parallel.ep:
        raise InputError(f"--ep: {parallel.ep} ranks do not share {shape.experts} experts evenly")
    gathered = tokens * parallel.dp
    local = shape.experts / parallel.ep
    active = local * (1.0 - (1.0 - shape.experts_per_token / shape.experts) ** gathered)
    return np.array([_moe_at(kernels.moe, t, a) for t, a in zip(gathered.tolist(), active.tolist(), strict=True)])


def _exchange_seconds(shape: Shape, tokens: Floats, parallel: Parallel) -> Floats:
    """Return the time [s] of gathering and scattering the tokens of all groups, one layer; none for one group."""
    if parallel.dp == 1:
        return np.zeros_like(tokens)
    if parallel.exchange is None:
        raise InputError(
            f"--exchange: missing; {parallel.dp} data-parallel ranks exchange tokens at every layer of experts; "
            "give its curve, a CSV of bytes,seconds, or a database's nccl_perf.parquet"
        )
    return _curve_at(parallel.exchange, tokens * parallel.dp * shape.hidden_size * ACTIVATION_BYTES)


def measured_tokens(kernels: KernelProfile, model: Model, parallel: Parallel) -> float:
    """Return the most tokens of a rank for which experts and collectives were measured, infinite where none matter."""
    shape = _shape(model)
    most = [np.inf]
    if shape.experts and kernels.moe:
        most.append(max(size for size, _ in kernels.moe) / parallel.dp)
    width = shape.hidden_size * ACTIVATION_BYTES
    if kernels.tp > 1 and parallel.allreduce is not None:
        most.append(parallel.allreduce[0][-1] / width)
    if parallel.dp > 1 and parallel.exchange is not None:
        most.append(parallel.exchange[0][-1] / width / parallel.dp)
    return float(min(most))


def _moe_at(moe: Mapping[tuple[float, float], float], tokens: float, experts: float) -> float:
    """Return the measured time at a point, linear in experts, then in tokens; ends are continued."""
    sizes = sorted({size for size, _ in moe})
    values = []
    for size in sizes:
        curve = {count: seconds for (at, count), seconds in moe.items() if at == size}
        values.append(float(_at(curve, np.array([experts]))[0]))
    return float(_at(dict(zip(sizes, values, strict=True)), np.array([tokens]))[0])


def _allreduce_seconds(kernels: KernelProfile, shape: Shape, tokens: Floats, parallel: Parallel) -> Floats:
    if kernels.tp == 1:
        return np.zeros_like(tokens)
    if parallel.allreduce is None:
        raise InputError(
            f"--allreduce: {kernels.folder} is a profile of TP {kernels.tp}, whose kernels hold no all-reduce; "
            "give its curve, a CSV of bytes,seconds"
        )
    payload = tokens * shape.hidden_size * ACTIVATION_BYTES
    return shape.layers * ALL_REDUCES * _curve_at(parallel.allreduce, payload)


def _curve_at(curve: tuple[Floats, Floats], at: Floats) -> Floats:
    return _at(dict(zip(curve[0].tolist(), curve[1].tolist(), strict=True)), at)


def _layer(kernels: KernelProfile, name: str, tokens: Floats) -> Floats:
    return _at(kernels.dense[name], tokens) if name in kernels.dense else np.zeros_like(tokens)


def _at(curve: Mapping[float, float], at: Floats) -> Floats:
    """Return `curve` at points: linear between, flat below, continued by the last slope above."""
    x = np.array(sorted(curve))
    y = np.array([curve[point] for point in x.tolist()])
    inside = np.interp(at, x, y)
    if len(x) < 2:
        return np.asarray(inside)
    slope = max((y[-1] - y[-2]) / (x[-1] - x[-2]), 0.0)
    return np.asarray(np.where(at > x[-1], y[-1] + slope * (at - x[-1]), inside))


def _shape(model: Model) -> Shape:
    if model.shape is None or model.weights is None:
        raise InputError(f"--model: {model.key} has no shape and weights in the catalog; allowed: a model that has")
    return model.shape
