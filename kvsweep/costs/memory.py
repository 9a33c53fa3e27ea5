"""What fits: the KV tokens that a group of GPUs holds beside the weights and what a step needs.

An engine takes a share of each GPU's memory, loads its part of the weights, keeps room for the largest step it will
run and gives the rest to KV. The room is built from the dimensions of the model and the steps that vLLM v1 makes unless
told otherwise. No constant was solved for, but the form of the room was chosen among several with the published
capacities in view, and the constants here are assumed: agreement with those is no blind prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

from kvsweep.catalog.configs.quantization import weight_bytes
from kvsweep.catalog.models import KV_DTYPE_BYTES, attention_layers, kv_bytes_per_token_allocated
from kvsweep.catalog.specs import Gpu, Model, Shape, Weights
from kvsweep.errors import InputError

MEMORY_UTILIZATION = 0.9
"""Share of a GPU's memory an engine takes unless told otherwise (gpu_memory_utilization)."""
LARGE_GPU_BYTES = 70 * 2**30
"""From this memory on vLLM takes larger steps [byte]."""


class Step(NamedTuple):
    """The largest step of an engine: its tokens [token] and the sequences whose next token is sampled at once [1]."""

    tokens: float
    sequences: float


LARGE_STEP, SMALL_STEP = Step(8192, 1024), Step(2048, 256)
"""Defaults of vLLM's server (max_num_batched_tokens, max_num_seqs) on GPUs from `LARGE_GPU_BYTES` on and below."""
LOGIT_BYTES = 12.0
"""Bytes of a logit in the sampler: fp32 logits, their probabilities and a sorted copy [byte]."""
RUNTIME_BYTES = 0.5e9
"""CUDA context, captured graphs and communication buffers of a GPU (assumed) [byte]."""
TILE_HIDDEN, TILE_INNER = 256, 128
"""Experts in mxfp4 are padded to these multiples by the kernels that multiply them (Marlin in vLLM)."""


class Dtypes(NamedTuple):
    """Numbers that KV and weights are kept in; `weights` None for those of the checkpoint."""

    kv: str = "bf16"
    weights: str | None = None


AS_STORED = Dtypes()


@dataclass(frozen=True, slots=True)
class Fit:
    """Memory of one of `gpus` GPUs [byte] by what it holds, and the KV tokens that all of them hold together.

    `tokens` [token] counts sequences of the length `sequence_tokens`: their windows and states take from what is left
    for tokens. It is 0 where the weights fill the memory.
    """

    gpus: int
    memory: float
    utilization: float
    weights: float
    step: float
    token_bytes: float
    sequence_bytes: float
    sequence_tokens: float
    largest_step: Step

    @property
    def kv(self) -> float:
        """Bytes for KV [byte]; negative where weights and step need more than there is."""
        return self.memory * self.utilization - self.weights - self.step

    @property
    def tokens(self) -> float:
        """KV tokens that fit [token]."""
        each = self.token_bytes + self.sequence_bytes / self.sequence_tokens
        return float(int(max(0.0, self.kv) / each)) if each else inf

    @property
    def line(self) -> str:
        """What fits and why, in words."""
        each = f" on each of {self.gpus} GPUs" if self.gpus > 1 else ""
        return (
            f"{self.tokens:,.0f} tokens of KV: {self.utilization:g} of {self.memory / 1e9:.4g} GB{each}, less "
            f"{self.weights / 1e9:.4g} GB of weights and {self.step / 1e9:.3g} GB for steps of "
            f"{self.largest_step.tokens:,.0f} tokens"
        )


def what_fits(
    model: Model,
    memory: float,
    gpus: int,
    utilization: float = MEMORY_UTILIZATION,
    dtypes: Dtypes = AS_STORED,
    sequence_tokens: float | None = None,
    step: Step | None = None,
) -> Fit:
    """Return what fits on `gpus` GPUs of `memory` [byte] each that share a model by tensor parallelism.

    Parameters
    ----------
    utilization
        Share [1] of the memory that the engine takes.
    sequence_tokens
        Length [token] that window layers and recurrent states are charged for; the model's maximum by default.
    step
        The largest step; by default `usual_step`.
    """
    shape, _ = _parts(model)
    length = sequence_tokens or shape.max_context or inf
    step = step or usual_step(memory)
    return Fit(
        gpus=gpus,
        memory=memory,
        utilization=utilization,
        weights=loaded_bytes(model, gpus, dtypes.weights),
        step=step_bytes(shape, gpus, step),
        token_bytes=kv_bytes_per_token_allocated(shape, gpus, dtypes.kv) / gpus,
        sequence_bytes=_sequence_bytes(shape, gpus, dtypes.kv, min(length, _window(shape) + step.tokens)),
        sequence_tokens=length,
        largest_step=step,
    )


def usual_step(memory: float) -> Step:
    """Return the largest step that vLLM makes on a GPU of `memory` [byte] unless told otherwise."""
    return LARGE_STEP if memory >= LARGE_GPU_BYTES else SMALL_STEP


def visible_bytes(gpu: Gpu) -> float:
    """Return the memory of a GPU as its driver shows it, else by its label [byte]."""
    return gpu.visible_memory.capacity_bytes if gpu.visible_memory else gpu.hbm_capacity


def stored_bytes(model: Model, dtype: str | None = None) -> float:
    """Return the bytes of the weights of a model [byte], of its checkpoint without a `dtype`."""
    if model.weights is None:
        return 2.0 * model.params
    weights = model.weights
    if weights.bytes is not None and dtype in (None, weights.dtype):
        return weights.bytes
    return weight_bytes(dtype or weights.dtype, weights.total, _unquantized(model))


def bytes_per_weight(model: Model) -> float:
    """Return the mean bytes of a parameter [byte] as the checkpoint keeps it."""
    quantised = model.weights is not None and model.weights.dtype != "bf16"
    return stored_bytes(model) / model.params if quantised else 2.0


def loaded_bytes(model: Model, gpus: int, dtype: str | None = None) -> float:
    """Return the bytes of the weights on each of `gpus` GPUs [byte], padded as the kernels want them."""
    shape, weights = _parts(model)
    whole = stored_bytes(model, dtype)
    if weights.experts and (dtype or weights.dtype) == "mxfp4":
        hidden, inner = shape.hidden_size, shape.moe_intermediate_size
        tiles = _up(hidden, TILE_HIDDEN) * _up(ceil(inner / gpus), TILE_INNER) * gpus / (hidden * inner)
        whole += (tiles - 1.0) * weight_bytes("mxfp4", weights.experts, 0.0)
    return whole / gpus


def step_bytes(shape: Shape, gpus: int, step: Step) -> float:
    """Return the bytes that the largest step needs on each GPU [byte]: activations, logits and the runtime's own.

    A token's activations are two hidden vectors and the widest MLP in its three forms (gate, up, product), bf16.
    """
    inner = max(shape.intermediate_size, shape.moe_intermediate_size * shape.experts_per_token)
    activations = step.tokens * 2.0 * (2 * shape.hidden_size + 3 * inner / gpus)
    return activations + step.sequences * shape.vocab * LOGIT_BYTES + RUNTIME_BYTES


def _window(shape: Shape) -> int:
    return max(shape.window - 1, 0)


def _sequence_bytes(shape: Shape, gpus: int, dtype: str, kept: float) -> float:
    """Return the bytes a sequence takes on each GPU whatever its length [byte]: `kept` tokens of windows, and states.

    Windows hold the tokens of a step beside their own: those are written before what falls out is dropped.
    """
    numbers = sum(
        group.layers * kept * group.numbers * ceil(group.heads / gpus) / group.heads
        for group in attention_layers(shape)
        if group.window
    )
    return numbers * KV_DTYPE_BYTES[dtype] + shape.state_bytes_per_sequence / gpus


def _unquantized(model: Model) -> float:
    """Return the parameters that stay bf16 [1]: all beside the blocks where nothing finer is known."""
    assert model.weights is not None
    weights = model.weights
    if weights.unquantized is not None:
        return weights.unquantized
    if weights.experts or (model.shape and model.shape.experts):
        return 2.0 * model.shape.vocab * model.shape.hidden_size if model.shape else 0.0
    return weights.total - weights.active_blocks if weights.active_blocks else 0.0


def _parts(model: Model) -> tuple[Shape, Weights]:
    if model.shape is None or model.weights is None:
        raise InputError(f"model {model.key}: no shape and weights in the catalog; what fits is unknown")
    return model.shape, model.weights


def _up(size: int, tile: int) -> int:
    return ceil(size / tile) * tile
