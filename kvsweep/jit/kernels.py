"""The loops of the grid engine, as plain Python; `kvsweep.jit.policies` compiles a copy of this file for each policy.

`decide`, `RECOMPUTES`, `N_MODES` and `POSITIONAL` are put into the copy's namespace before it runs. The file is
also valid Python as it stands, which is how the tests run it uncompiled.
"""

from collections.abc import Callable
from typing import Any

from kvsweep.costs.placement import miss_blocks, residency
from kvsweep.costs.restore import blended_throughput
from kvsweep.policies.context import ANY, FRONT, LINEAR, Context

decide: Callable[[Context], tuple[float, int]]
RECOMPUTES: float
N_MODES: int
POSITIONAL: bool
"""Whether any row may be outside the linear model; without, the loop over cells does not pay for the others."""

# One row is one point of all axes but request rate and latency target; its fields, in the order of Context.
TOTAL, MISS, HIT, STORAGE, RECOMPUTE, VRAM_HIT, DRAM_HIT, DISK_HIT = range(8)
VRAM, DRAM, DISK, TOKENS, TOKEN_SECONDS, TOKEN_PAIR_SECONDS = range(8, 14)
OVERLAP, LAYERS, SETUP_SECONDS = range(14, 17)
N_ROW_FIELDS = 17

# One deployment, as `kvsweep.costs.deployment.Rates` orders it.
D_VRAM_CAPACITY, D_DRAM_CAPACITY, D_VRAM, D_DRAM, D_DISK, D_RECOMPUTE = range(6)
D_TOKENS, D_TOKEN_SECONDS, D_TOKEN_PAIR_SECONDS, D_OVERLAP, D_LAYERS, D_SETUP_SECONDS = range(6, 12)


def fill_rows(
    first: int, deployments: Any, total_blocks: Any, fractions: Any, hits: Any, hits_are_misses: bool, rows: Any
) -> None:
    """Fill `rows` (field, row) with the points first, first + 1, … of deployment × total × placement × hit axis.

    Parameters
    ----------
    deployments : (deployment, 12)
    total_blocks : (total,) [block]
    fractions : (placement, 3) normalised shares [1] of vram, dram, disk; NaN for auto
    hits : (hit,) hit percent [1], or missing blocks [block] where `hits_are_misses`
    """
    n_hit, n_placement, n_total = hits.size, fractions.shape[0], total_blocks.size
    for row in range(rows.shape[1]):
        point = first + row
        point, hit = divmod(point, n_hit)
        point, placement = divmod(point, n_placement)
        deployment, total = divmod(point, n_total)
        blocks = total_blocks[total]
        missing = hits[hit] if hits_are_misses else miss_blocks(blocks, hits[hit])
        cached = blocks - missing
        capacities = (deployments[deployment, D_VRAM_CAPACITY], deployments[deployment, D_DRAM_CAPACITY])
        shares = (fractions[placement, 0], fractions[placement, 1], fractions[placement, 2])
        in_tier = residency(cached, capacities, shares)
        rates = (deployments[deployment, D_VRAM], deployments[deployment, D_DRAM], deployments[deployment, D_DISK])
        rows[TOTAL, row] = blocks
        rows[MISS, row] = missing
        rows[HIT, row] = cached
        rows[STORAGE, row] = blended_throughput(in_tier, rates)
        rows[RECOMPUTE, row] = deployments[deployment, D_RECOMPUTE]
        rows[VRAM_HIT, row], rows[DRAM_HIT, row], rows[DISK_HIT, row] = in_tier
        rows[VRAM, row], rows[DRAM, row], rows[DISK, row] = rates
        rows[TOKENS, row] = deployments[deployment, D_TOKENS]
        rows[TOKEN_SECONDS, row] = deployments[deployment, D_TOKEN_SECONDS]
        rows[TOKEN_PAIR_SECONDS, row] = deployments[deployment, D_TOKEN_PAIR_SECONDS]
        rows[OVERLAP, row] = deployments[deployment, D_OVERLAP]
        rows[LAYERS, row] = deployments[deployment, D_LAYERS]
        rows[SETUP_SECONDS, row] = deployments[deployment, D_SETUP_SECONDS]


def evaluate_rows(rows: Any, request_rate: Any, p95_seconds: Any, out: Any) -> int:
    """Decide every cell of `rows` × `request_rate` × `p95_seconds`; return how many decisions were nonsense.

    Parameters
    ----------
    rows : (field, row)
    request_rate : (rate,) [1/s]
    p95_seconds : (target,) [s]
    out : four arrays (row, rate, target): reassigned hit blocks [block], total time [s], SLO met, decision mode
    """
    reassigned_out, time_out, meets_out, mode_out = out
    nonsense = 0
    for row in range(rows.shape[1]):
        total, miss, hit = rows[TOTAL, row], rows[MISS, row], rows[HIT, row]
        storage, recompute = rows[STORAGE, row], rows[RECOMPUTE, row]
        vram_hit, dram_hit, disk_hit = rows[VRAM_HIT, row], rows[DRAM_HIT, row], rows[DISK_HIT, row]
        vram, dram, disk = rows[VRAM, row], rows[DRAM, row], rows[DISK, row]
        tokens, linear, quadratic = rows[TOKENS, row], rows[TOKEN_SECONDS, row], rows[TOKEN_PAIR_SECONDS, row]
        overlap, layers, setup, side = LINEAR, 1.0, 0.0, RECOMPUTES
        if POSITIONAL:
            overlap, layers, setup = rows[OVERLAP, row], rows[LAYERS, row], rows[SETUP_SECONDS, row]
            side = FRONT if RECOMPUTES == ANY and overlap != LINEAR else RECOMPUTES
        for i in range(request_rate.size):
            rate = request_rate[i]
            for j in range(p95_seconds.size):
                ctx = Context(
                    total, miss, hit, rate, p95_seconds[j], storage, recompute, vram_hit, dram_hit, disk_hit,
                    vram, dram, disk, tokens, linear, quadratic, side, overlap, layers, setup,
                )  # fmt: skip
                answer, mode = decide(ctx)
                reassigned = ctx.clamp(answer)
                total_time = ctx.total_seconds(reassigned)
                nonsense += (answer != answer) | (mode < 0) | (mode >= N_MODES) | (mode != int(mode))
                reassigned_out[row, i, j] = reassigned
                time_out[row, i, j] = total_time
                meets_out[row, i, j] = (
                    ctx.max_violation(reassigned) if POSITIONAL else ctx.violation(total_time)
                ) == 0.0
                mode_out[row, i, j] = mode
    return nonsense
