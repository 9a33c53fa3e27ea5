"""One request on one deployment as a policy sees it (the scalar path)."""

from __future__ import annotations

from kvsweep.costs.deployment import Rates
from kvsweep.costs.placement import residency
from kvsweep.costs.restore import blended_throughput
from kvsweep.policies.context import Context, side_of


def request_context(
    rates: Rates,
    fractions: tuple[float, float, float],
    blocks: tuple[float, float],
    request_rate: float,
    p95_seconds: float,
    recomputes: str = "any",
) -> Context:
    """Return the `Context` of a request.

    Parameters
    ----------
    fractions
        Shares [1] of vram, dram, disk, as `placement.normalized` returns them; NaN for auto.
    blocks
        Blocks needed in all and blocks cached nowhere [block].
    request_rate
        [1/s], greater than 0.
    p95_seconds
        [s], greater than 0.
    recomputes
        The side of the policy that will decide, one of `SIDES`.
    """
    total, missing = blocks
    cached = total - missing
    in_tier = residency(cached, (rates.vram_capacity_blocks, rates.dram_capacity_blocks), fractions)
    throughputs = (rates.vram_throughput, rates.dram_throughput, rates.disk_throughput)
    return Context(
        total, missing, cached, request_rate, p95_seconds,
        blended_throughput(in_tier, throughputs), rates.recompute_throughput, *in_tier, *throughputs,
        rates.tokens_per_block, rates.token_seconds, rates.token_pair_seconds,
        side_of(recomputes, rates.overlap), rates.overlap, rates.layers, rates.setup_seconds,
    )  # fmt: skip
