"""How fast missing blocks are computed again (cost model ``linear``: 2 FLOP a parameter and token)."""

from __future__ import annotations


def seconds_per_token(model_params: float, peak_flops: float, gpu_count: float, gpu_eta: float) -> float:
    """Return the prefill time [s] of one token: ``2 P / (peak_flops g eta)``."""
    return (2.0 * model_params) / ((peak_flops * gpu_count) * gpu_eta)


def recompute_throughput(tokens_per_block: float, token_seconds: float) -> float:
    """Return the rate [block/s] of recomputing blocks of `tokens_per_block` tokens."""
    return 1.0 / (tokens_per_block * token_seconds)
