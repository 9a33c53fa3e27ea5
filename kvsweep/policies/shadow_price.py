"""Recompute a token where computing costs less than restoring, each at the price that its queue puts on a second.

In an M/D/1 queue a second of work of every request makes all wait, the more the busier the station: a second costs
about ``1 / (1 - rho)^2``. Token p is recomputed while ``(a + b p) / (1 - rho_gpu)^2 < s / (1 - rho_io)^2``, with the
utilisations ``rho = r C`` and ``r S`` that the resulting k itself makes: a fixed point. The left side grows with k and
the right one falls, so bisection on k finds it. Of two overloaded stations the busier one is relieved.
"""

from kvsweep.policies.context import Context

name = "shadow_price"
label = "Shadow price"
description = "Recompute the front as far as computing, at the price of a busy GPU, costs less than restoring."
color = "#2b8a57"
order = 28
recomputes = "front"
models = "positional"
modes = ("restore_all", "recompute_all", "priced")

STEPS = 50
"""Halvings of the prefix: to 1e-15 of it."""


def decide(ctx: Context) -> tuple[float, str]:
    low, high = 0.0, ctx.hit_blocks
    blocks = 0.0
    # The first two questions are of the ends, in the one loop, so that what it inlines is compiled once.
    for step in range(STEPS + 2):
        paying = pays(ctx, blocks)
        if step == 0 and (ctx.hit_blocks <= 0.0 or not paying):
            return 0.0, "restore_all"
        if step == 1 and paying:
            return ctx.hit_blocks, "recompute_all"
        if paying:
            low = blocks
        else:
            high = blocks
        blocks = ctx.hit_blocks if step == 0 else 0.5 * (low + high)
    return blocks, "priced"


def pays(ctx: Context, blocks: float) -> bool:
    """Return whether recomputing the block at `blocks` [block], all before it recomputed, costs less than restoring."""
    busy_gpu = ctx.request_rate * ctx.recompute_seconds(blocks)
    busy_io = ctx.request_rate * ctx.restore_seconds(blocks)
    if busy_gpu >= 1.0 or busy_io >= 1.0:
        return busy_gpu < busy_io
    # The block at the end of all is the last one, wherever that lies.
    tier = ctx.vram_throughput
    if ctx.disk_hit_blocks > 0.0 and blocks >= ctx.vram_hit_blocks + ctx.dram_hit_blocks:
        tier = ctx.disk_throughput
    elif ctx.dram_hit_blocks > 0.0 and blocks >= ctx.vram_hit_blocks:
        tier = ctx.dram_throughput
    computed = ctx.token_seconds + ctx.token_pair_seconds * blocks * ctx.tokens_per_block
    restored = 1.0 / (tier * ctx.tokens_per_block)
    return computed * (1.0 - busy_io) * (1.0 - busy_io) < restored * (1.0 - busy_gpu) * (1.0 - busy_gpu)
