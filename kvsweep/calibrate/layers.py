"""What a step of a model is made of: which profiled layers run how often, mixtures of experts and all-reduces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvsweep.calibrate.kernels import KernelProfile
from kvsweep.catalog.specs import Model, Shape
from kvsweep.errors import InputError

Floats = NDArray[np.float64]

PER_LAYER = {"layernorm": 2, "qkv_proj": 1, "qk_norm": 2, "rotary_emb": 1, "o_proj": 1}
"""Layers of every block, with how often they run; those that a profile lacks do not run in its model."""
DENSE_FEED_FORWARD = {"gate_up_proj": 1, "act_fn": 1, "down_proj": 1}
ONCE = {"embedding": 1, "final_layernorm": 1}
NEEDED = ("layernorm", "qkv_proj", "o_proj", "embedding", "final_layernorm")
HEAD = ("lm_head", "sampler")
ALL_REDUCES = 2
"""All-reduces of a layer under tensor parallelism: after attention and after the feed-forward part."""


@dataclass(frozen=True, slots=True)
class Parallel:
    """How a worker's ranks share the model: `ep` ranks share the experts of `dp` groups of requests.

    `allreduce` is the time of an all-reduce [s] by its bytes, for tensor parallelism.
    """

    dp: int = 1
    ep: int = 1
    allreduce: tuple[Floats, Floats] | None = None


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
        total += moe_layers * expert_seconds(kernels, shape, tokens, parallel)
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
    size, seconds = parallel.allreduce
    payload = tokens * shape.hidden_size * 2.0
    return shape.layers * ALL_REDUCES * _at(dict(zip(size.tolist(), seconds.tolist(), strict=True)), payload)


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
