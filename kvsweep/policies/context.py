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
    """Code of the side the policy recomputes, an index into `SIDES`."""

    def clamp(self, blocks: float) -> float:
        """Return `blocks` [block] brought into 0..hit_blocks."""
        # One expression: as two returns, LLVM vectorises the callers' loops a third less well.
        return 0.0 if blocks < 0.0 else (self.hit_blocks if blocks > self.hit_blocks else blocks)

    def restore_seconds(self, reassigned: float) -> float:
        """Return the time [s] to restore the hits that are left when `reassigned` blocks are recomputed.

        ``any`` draws from all tiers in proportion and restores at the blended rate. Positions of a prefix map
        to vram, dram, disk from its front to its tail, so ``front`` empties the fastest tier first and ``tail``
        the slowest; both sum what is left in each tier.
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
        return (
            (vram - from_vram) / self.vram_throughput
            + (dram - from_dram) / self.dram_throughput
            + (disk - from_disk) / self.disk_throughput
        )

    def recompute_seconds(self, reassigned: float) -> float:
        """Return the time [s] to compute the misses and `reassigned` hit blocks [block]."""
        rate = self.recompute_throughput
        return (self.miss_blocks + reassigned) / rate if rate > 0.0 else INFINITY

    def total_seconds(self, reassigned: float) -> float:
        """Return the time [s] of the request, restore and recompute overlapping."""
        storage, compute = self.restore_seconds(reassigned), self.recompute_seconds(reassigned)
        return storage if storage > compute else compute

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
        """Return `violation` [1] of recomputing `reassigned` hit blocks [block]."""
        return self.violation(self.total_seconds(reassigned))
