"""What a restore-or-recompute policy sees of one request, and the consequences of its choice.

`Context` holds scalars only. Its helpers are plain Python: the scalar path calls them, and the grid engine
compiles them together with the policy, so that a policy means the same in both.
"""

from __future__ import annotations

from typing import NamedTuple

INFINITY = float("inf")

SIDES = ("any", "front", "tail")
"""What a policy recomputes: a proportional share of every tier, the front of the prefix, or its tail.

The index of a name is its code in `Context.recomputes`.
"""

ANY, FRONT, TAIL = 0.0, 1.0, 2.0

LINEAR, IDEAL, LAYERWISE, SERIAL = 0.0, 1.0, 2.0, 3.0
"""Codes of `Context.overlap`: the linear model, whose sides overlap fully and where positions do not matter, or the
positional one with a full overlap, with layers in turn, or with a suffix that waits for what is restored."""


def side_of(recomputes: str, overlap: float) -> float:
    """Return the code of the side that a policy recomputes: outside the linear model ``any`` counts as ``front``."""
    side = float(SIDES.index(recomputes))
    return FRONT if side == ANY and overlap != LINEAR else side


class Allocation(NamedTuple):
    """A split of one request's blocks and how long each side takes."""

    storage_blocks: float
    """Hit blocks restored [block]."""
    recompute_blocks: float
    """Missing and reassigned blocks computed on the GPU [block]."""
    storage_time: float
    """Time of the restore [s]; inf where nothing can be restored."""
    recompute_time: float
    """Time of the recomputation [s]; inf where nothing can be computed."""
    total_time: float
    """Time of the request [s]: the longer of the two, which overlap."""


class Context(NamedTuple):
    """One request on one deployment, all numbers float64."""

    total_blocks: float
    """KV blocks the request needs [block]."""
    miss_blocks: float
    """Blocks cached nowhere, always recomputed [block]."""
    hit_blocks: float
    """Cached blocks [block]."""
    request_rate: float
    """Requests a second [1/s]."""
    p95_seconds: float
    """Latency target [s]."""
    storage_throughput: float
    """Restore rate of the hit blocks taken together [block/s]."""
    recompute_throughput: float
    """Rate of recomputation [block/s]."""
    vram_hit_blocks: float
    """Hit blocks in HBM [block]."""
    dram_hit_blocks: float
    """Hit blocks in host DRAM [block]."""
    disk_hit_blocks: float
    """Hit blocks on disk [block]."""
    vram_throughput: float
    """Restore rate from HBM [block/s]."""
    dram_throughput: float
    """Restore rate from host DRAM [block/s]."""
    disk_throughput: float
    """Restore rate from disk [block/s]."""
    tokens_per_block: float
    """Tokens in a block [token]."""
    token_seconds: float
    """Linear cost coefficient a: compute time of a token [s]."""
    token_pair_seconds: float
    """Quadratic cost coefficient b: attention time of a token for each token before it [s]; 0 in the linear model."""
    recomputes: float
    """Code of the side the policy recomputes, an index into `SIDES`; outside the linear model never `ANY`."""
    overlap: float = LINEAR
    """Code of how restore and recompute overlap, one of `LINEAR IDEAL LAYERWISE SERIAL`."""
    layers: float = 1.0
    """Layers of the model [1]: with `LAYERWISE`, the steps in which both sides take turns."""
    setup_seconds: float = 0.0
    """Fixed time of restoring anything from outside HBM [s]; none in the linear model."""

    def clamp(self, blocks: float) -> float:
        """Return `blocks` [block] brought into 0..hit_blocks."""
        # One expression: as two returns, LLVM vectorises the callers' loops a third less well.
        return 0.0 if blocks < 0.0 else (self.hit_blocks if blocks > self.hit_blocks else blocks)

    def restore_seconds(self, reassigned: float) -> float:
        """Return the time [s] to restore the hits that are left when `reassigned` blocks are recomputed.

        ``any`` draws from all tiers in proportion and restores at the blended rate. Positions of a prefix map
        to vram, dram, disk from its front to its tail, so ``front`` empties the fastest tier first and ``tail``
        the slowest; both sum what is left in each tier, and `setup_seconds` where that is outside HBM.
        """
        if self.recomputes == ANY:
            left = self.hit_blocks - reassigned
            return left / self.storage_throughput if self.storage_throughput > 0.0 else INFINITY
        vram, dram, disk = self.vram_hit_blocks, self.dram_hit_blocks, self.disk_hit_blocks
        if self.recomputes == TAIL:
            from_disk = reassigned if reassigned < disk else disk
            from_dram = min(reassigned - from_disk, dram)
            from_vram = min(reassigned - from_disk - from_dram, vram)
        else:
            from_vram = reassigned if reassigned < vram else vram
            from_dram = min(reassigned - from_vram, dram)
            from_disk = min(reassigned - from_vram - from_dram, disk)
        seconds = (
            (vram - from_vram) / self.vram_throughput
            + (dram - from_dram) / self.dram_throughput
            + (disk - from_disk) / self.disk_throughput
        )
        if self.overlap == LINEAR:
            return seconds
        return seconds + self.setup_seconds if (dram - from_dram) + (disk - from_disk) > 0.0 else seconds

    def prefix_seconds(self, blocks: float) -> float:
        """Return the time [s] to compute the first `blocks` [block] of a prompt: ``a n + b n^2 / 2`` of n tokens."""
        tokens = blocks * self.tokens_per_block
        return tokens * (self.token_seconds + 0.5 * self.token_pair_seconds * tokens)

    def recompute_seconds(self, reassigned: float) -> float:
        """Return the time [s] to compute the misses and `reassigned` hit blocks [block].

        Outside the linear model a token costs the more the later it stands: ``C(i, j)`` of tokens i to j given the KV
        of all before is ``a (j - i) + b (j^2 - i^2) / 2``, and the misses are the end of the prompt.
        """
        if self.overlap == LINEAR:
            rate = self.recompute_throughput
            return (self.miss_blocks + reassigned) / rate if rate > 0.0 else INFINITY
        end = self.prefix_seconds(self.total_blocks)
        if self.recomputes == TAIL:
            return end - self.prefix_seconds(self.hit_blocks - reassigned)
        return self.prefix_seconds(reassigned) + (end - self.prefix_seconds(self.hit_blocks))

    def total_seconds(self, reassigned: float) -> float:
        """Return the time [s] of the request, restore (S) and recompute (C) overlapping as `overlap` says.

        ``max(S, C)``; layer-wise ``max(S, C) + min(S, C) / L``; serial ``max(S, C(0, k)) + C(H, N)``, for a tail,
        which needs all that is restored, ``S + C``.
        """
        storage, compute = self.restore_seconds(reassigned), self.recompute_seconds(reassigned)
        if self.overlap <= IDEAL:
            return storage if storage > compute else compute
        if self.overlap == LAYERWISE:
            return max(storage, compute) + min(storage, compute) / self.layers
        if self.recomputes == TAIL:
            return storage + compute
        front = self.prefix_seconds(reassigned)
        return max(storage, front) + (compute - front)

    def allocation(self, reassigned: float) -> Allocation:
        """Return the split and its times when `reassigned` hit blocks [block] (0..hit_blocks) are recomputed."""
        return Allocation(
            self.hit_blocks - reassigned,
            self.miss_blocks + reassigned,
            self.restore_seconds(reassigned),
            self.recompute_seconds(reassigned),
            self.total_seconds(reassigned),
        )

    def violation(self, total_time: float) -> float:
        """Return by how much [1] a request of `total_time` [s] misses the worst of its limits; 0 if it meets the SLO.

        The limits are latency ``T / p <= 1`` and utilisation of GPU and storage, ``r T_c <= 1`` and ``r T_s <= 1``.
        The two last are one, ``r T <= 1``: T is the longer of both, and rounding is monotone.
        """
        latency = total_time / self.p95_seconds - 1.0
        busy = self.request_rate * total_time - 1.0
        worst = busy if busy > latency else latency
        return worst if worst > 0.0 else 0.0

    def max_violation(self, reassigned: float) -> float:
        """Return `violation` [1] of recomputing `reassigned` hit blocks [block].

        Where the request takes longer than its longer side, only that side keeps GPU or storage busy.
        """
        total = self.total_seconds(reassigned)
        if self.overlap <= IDEAL:
            return self.violation(total)
        busiest = max(self.restore_seconds(reassigned), self.recompute_seconds(reassigned))
        latency, busy = total / self.p95_seconds - 1.0, self.request_rate * busiest - 1.0
        return max(latency, busy, 0.0)
