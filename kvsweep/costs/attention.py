"""Cost model ``attention``: what a token of prefill costs by where it stands, and which share of the peak does it.

Computing tokens i to j given the KV of all before takes ``C(i, j) = a (j - i) + b (j^2 - i^2) / 2`` seconds on F
FLOP/s, ``a = (2 P / eta_gemm + window / eta_attention) / F + all-reduce``, ``b = 2 L_full n_h (d_qk + d_v) / (F
eta_attention)`` (P active parameters without embeddings and head, L_full layers of full attention, n_h query heads,
d head widths). Grouped queries make the KV smaller, not the attention.
"""

from __future__ import annotations

from typing import NamedTuple

from kvsweep.catalog.models import prefill_work
from kvsweep.catalog.specs import Gpu, GpuEfficiency, Model, Shape

MEASURED_TOKENS = 16_384.0
"""Longest prompt [token] that the shares of the catalog were measured with; past it they are extrapolated."""
ASSUMED = GpuEfficiency(gemm=0.7, experts=0.4, attention=0.5, attention_narrow=0.4)
"""Shares of a GPU whose kernels nobody measured, somewhat below those that were."""
NARROW_HEAD = 64
REDUCTIONS_PER_LAYER = 2.0
"""All-reduces of a layer under tensor parallelism: one after attention, one after the rest."""
ACTIVATION_BYTES = 2.0  # bf16
PEER_SHARE = 0.75
"""Share of a peer link's one-way rate that all-reduces of large messages reach: NCCL moves 512 MiB over 2, 4 and 8
H100 at .69, .77 and .78 of it, over 8 A100 at .72 (ai-dynamo/aiconfigurator, nccl_perf)."""


class PrefillCost(NamedTuple):
    """Work of a token of prefill, and what it is done with; FLOPs of a token [FLOP], bytes [byte], shares [1]."""

    products: float
    window: float
    """Of attention to as many tokens wherever a token stands: of windows, and of sparse layers at their full reach."""
    pair: float
    """For each token before it."""
    reduced_bytes: float
    """Activations that tensor parallelism adds up over the GPUs."""
    layers: float
    max_context: float
    """Longest context the model was made for [token]."""
    gemm_eta: float
    """Of products and experts together."""
    attention_eta: float
    assumed: bool
    """Whether any share is assumed, not measured on this GPU."""

    def token_seconds(self, flops: float) -> float:
        """Return the time [s] of a token without those before it, at `flops` [FLOP/s] of all GPUs."""
        return (self.products / self.gemm_eta + self.window / self.attention_eta) / flops

    def pair_seconds(self, flops: float) -> float:
        """Return the time [s] of a token for each token before it."""
        return self.pair / (flops * self.attention_eta)

    def attention_share(self, tokens: float) -> float:
        """Return the share [1] of attention in the FLOPs of a prompt of `tokens` [token]."""
        attention = self.window + 0.5 * self.pair * tokens
        return attention / (self.products + attention)


def prefill_cost(
    model: Model, gpu: Gpu, gemm_eta: float | None = None, attention_eta: float | None = None
) -> PrefillCost:
    """Return what prefill of `model` costs on `gpu`.

    `gemm_eta` and `attention_eta` [1] replace the shares of the catalog; attention without a share of its own takes
    `gemm_eta`. Raises InputError for a model without shape and weights.
    """
    work, shape = prefill_work(model), model.shape
    assert shape is not None
    narrow = shape.head_dim <= NARROW_HEAD
    known = gpu.efficiency or ASSUMED
    experts, thin = known.experts or ASSUMED.experts, known.attention_narrow or ASSUMED.attention_narrow
    assert experts is not None and thin is not None
    own_gemm, own_attention = _blended(work.products, shape, known.gemm, experts), thin if narrow else known.attention
    guessed = known.kind == "assumed" or (narrow and known.attention_narrow is None)
    guessed = guessed or (shape.experts > 0 and known.experts is None)
    return PrefillCost(
        work.products, work.window + (work.sparse_pair * work.reach if work.sparse_pair else 0.0), work.pair,
        REDUCTIONS_PER_LAYER * shape.layers * shape.hidden_size * ACTIVATION_BYTES, float(shape.layers),
        float(shape.max_context), gemm_eta or own_gemm, attention_eta or gemm_eta or own_attention,
        guessed and gemm_eta is None,
    )  # fmt: skip


def all_reduce_seconds(reduced_bytes: float, gpu_count: float, bytes_per_s: float) -> float:
    """Return the time [s] that `gpu_count` GPUs take to add up `reduced_bytes` [byte] over links of that rate, one way.

    A ring sends ``2 (g - 1) / g`` of the bytes over each link, which reaches `PEER_SHARE` of its rate.
    """
    return 2.0 * (gpu_count - 1.0) / gpu_count * reduced_bytes / (PEER_SHARE * bytes_per_s)


def _blended(products: float, shape: Shape, gemm: float, experts: float) -> float:
    """Return the share [1] of products of which those of the routed experts run at their own."""
    width = 3.0 * shape.hidden_size * shape.moe_intermediate_size * shape.experts_per_token
    routed = 2.0 * width * (shape.layers - shape.dense_layers)
    routed = min(routed, products)
    return products / (routed / experts + (products - routed) / gemm)
