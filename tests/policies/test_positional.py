"""Policies that see where a token stands: closed forms against exhaustive search, and known consequences."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from kvsweep.policies import Context, load_policies
from kvsweep.policies.context import FRONT, IDEAL, LAYERWISE, SERIAL, TAIL

POLICIES = load_policies()
CASES = int(os.environ.get("POLICY_SOAK", "120"))
"""Random cases of each test; `make soak` takes more."""
OVERLAPS = {"ideal": IDEAL, "layerwise": LAYERWISE, "serial": SERIAL}


def drawn(seed: int, overlap: float, side: float) -> Context:
    """Return a random request of one to three tiers, at times without attention or with a fixed time of restoring."""
    rng = np.random.default_rng(seed)
    held = np.floor(rng.uniform(0, 120, 3)) * rng.integers(0, 2, 3)
    held[int(rng.integers(0, 3))] += 1
    speeds = np.sort(10 ** rng.uniform(1, 5, 3))[::-1]
    if rng.integers(0, 3) == 0:
        speeds[0] = math.inf
    missing = float(rng.integers(0, 100) * rng.integers(0, 2))
    hits, tokens = float(held.sum()), 16.0
    a = 10 ** rng.uniform(-6, -2) / tokens
    b = a * 10 ** rng.uniform(-6, -1) * float(rng.integers(0, 4) > 0)
    seconds = sum(n / rate for n, rate in zip(held, speeds, strict=True) if n)
    setup = float(rng.uniform(0, 0.1) * seconds * rng.integers(0, 2))
    return Context(
        hits + missing, missing, hits, 10 ** rng.uniform(-3, 2), 1.0, hits / seconds if seconds else math.inf,
        1.0 / (tokens * a), *map(float, held), *map(float, speeds), tokens, a, b, side, overlap,
        float(rng.integers(1, 90)), setup,
    )  # fmt: skip


def parts(ctx: Context, k: float) -> tuple[float, float, float]:
    """Return (S, C(0, k), C(H, N)) of a recomputed front [s], a token's cost summed by the integral of its line."""
    hits, size = ctx.hit_blocks, ctx.tokens_per_block
    left, restored = k, 0.0
    outside = 0.0
    for n, rate, is_hbm in zip(
        (ctx.vram_hit_blocks, ctx.dram_hit_blocks, ctx.disk_hit_blocks),
        (ctx.vram_throughput, ctx.dram_throughput, ctx.disk_throughput), (True, False, False), strict=True,
    ):  # fmt: skip
        taken = min(left, n)
        left -= taken
        restored += (n - taken) / rate
        outside += 0.0 if is_hbm else n - taken
    restored += ctx.setup_seconds if outside > 0 else 0.0

    def cost(begin: float, end: float) -> float:
        i, j = begin * size, end * size
        return (j - i) * (ctx.token_seconds + ctx.token_pair_seconds * (i + j) / 2)

    return restored, cost(0, k), cost(hits, ctx.total_blocks)


def total(ctx: Context, k: float) -> float:
    restored, front, suffix = parts(ctx, k)
    if ctx.overlap == SERIAL:
        return max(restored, front) + suffix
    computed = front + suffix
    less = min(restored, computed) / ctx.layers if ctx.overlap == LAYERWISE else 0.0
    return max(restored, computed) + less


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_the_best_front_is_the_least_of_all(overlap: str) -> None:
    for seed in range(CASES):
        ctx = drawn(seed, OVERLAPS[overlap], FRONT)
        k, _ = POLICIES["front_k_overlap"].choose(ctx)
        every = {float(each): total(ctx, float(each)) for each in range(int(ctx.hit_blocks) + 1)}
        least = min(every.values())
        assert ctx.total_seconds(k) == pytest.approx(total(ctx, k), rel=1e-9)
        assert total(ctx, k) <= least * (1 + 1e-9)
        assert total(ctx, k) <= min(total(ctx, 0.0), total(ctx, ctx.hit_blocks)) * (1 + 1e-12)


def test_cake_meets_within_a_block_of_the_best_serial_front() -> None:
    for seed in range(CASES):
        ctx = drawn(seed, SERIAL, FRONT)
        k, _ = POLICIES["cake"].choose(ctx)
        every = [total(ctx, float(each)) for each in range(int(ctx.hit_blocks) + 1)]
        assert total(ctx, k) <= min(every) * (1 + 1e-9)


def test_cake_and_balance_have_the_closed_forms_of_one_tier() -> None:
    ctx = drawn(3, IDEAL, FRONT)._replace(
        vram_hit_blocks=0.0, dram_hit_blocks=5000.0, disk_hit_blocks=0.0, hit_blocks=5000.0, total_blocks=5100.0,
        miss_blocks=100.0, dram_throughput=400.0, token_seconds=4e-5, token_pair_seconds=7e-10, setup_seconds=0.0,
    )  # fmt: skip
    a, b, s, hits = 4e-5, 7e-10, 1 / 6400, 80_000.0
    cake = (-(a + s) + math.sqrt((a + s) ** 2 + 2 * b * s * hits)) / b / 16
    assert POLICIES["cake"].choose(ctx)[0] == pytest.approx(cake, rel=1e-9)
    suffix = parts(ctx, 0)[2]
    balance = (-(a + s) + math.sqrt((a + s) ** 2 + 2 * b * max(0.0, s * hits - suffix))) / b / 16
    assert POLICIES["front_k_overlap"].choose(ctx) == (pytest.approx(balance, rel=1e-9), "front_balanced")


def test_the_balanced_k_can_lose_to_plain_restore() -> None:
    """Llama-70B on 8 H100 at eta .45, 12 GB/s, 120k cached and 8k new tokens (spec: known consequences)."""
    flops = 8 * 989.4e12 * 0.45
    a, b, s = 2 * 70.6e9 / flops, 2 * 80 * 64 * 256 / flops, 327_680 / 12e9
    x = 1.0 / (16 * s)
    base = Context(
        8000.0, 500.0, 7500.0, 0.01, 60.0, x, 1 / (16 * a), 0.0, 7500.0, 0.0, x, x, x, 16.0, a, b, FRONT, LAYERWISE,
        80.0,
    )  # fmt: skip
    balanced, _ = POLICIES["performance_aware"].choose(base)
    best, _ = POLICIES["front_k_overlap"].choose(base)
    assert base._replace(overlap=IDEAL).total_seconds(balanced) == pytest.approx(3.52, abs=0.005)
    assert base.total_seconds(balanced) == pytest.approx(3.545, abs=0.005)
    assert base.total_seconds(0.0) == pytest.approx(3.29, abs=0.005)
    assert base.total_seconds(best) == pytest.approx(2.52, abs=0.02)


def test_others_are_never_worse_than_both_ends_under_their_own_model() -> None:
    for seed in range(CASES):
        ctx = drawn(seed, SERIAL, FRONT)

        def apart(k: float, ctx: Context = ctx) -> float:
            restored, front, _ = parts(ctx, k)
            return restored + front

        k, mode = POLICIES["min_of_two"].choose(ctx)
        assert mode == ("recompute_all" if k else "restore_all") or ctx.hit_blocks == 0
        restore, recompute = parts(ctx, 0.0)[0], parts(ctx, ctx.hit_blocks)[1]
        assert (k == 0.0) == (restore < recompute)
        k, _ = POLICIES["positional_breakeven"].choose(ctx)
        assert apart(k) <= min(apart(float(each)) for each in range(int(ctx.hit_blocks) + 1)) * (1 + 1e-9)


def test_what_has_not_arrived_by_the_timeout_is_recomputed() -> None:
    for seed in range(CASES):
        ctx = drawn(seed, SERIAL, TAIL)
        slow = ctx._replace(dram_throughput=min(ctx.dram_throughput, 20.0), disk_throughput=5.0)
        limit = min(30.0, 2.0 + 0.1 * slow.hit_blocks * 16 / 1024)
        k, mode = POLICIES["hicache_timeout"].choose(slow)
        if mode == "all_arrived":
            assert k == 0.0 and slow.restore_seconds(0.0) <= limit
        else:
            begun = slow.vram_hit_blocks / slow.vram_throughput + slow.setup_seconds
            nothing_came = k >= slow.hit_blocks - slow.vram_hit_blocks and begun >= limit
            assert slow.restore_seconds(k) == pytest.approx(limit, rel=1e-9) or nothing_came


def test_the_shadow_price_shifts_work_from_the_busier_station() -> None:
    """At no load it is the break-even position; the more a GPU is asked for, the less it recomputes."""
    ctx = drawn(3, SERIAL, FRONT)._replace(
        vram_hit_blocks=0.0, dram_hit_blocks=5000.0, disk_hit_blocks=0.0, hit_blocks=5000.0, total_blocks=9000.0,
        miss_blocks=4000.0, dram_throughput=400.0, token_seconds=4e-5, token_pair_seconds=4e-9, setup_seconds=0.0,
        request_rate=1e-9,
    )  # fmt: skip
    idle, _ = POLICIES["shadow_price"].choose(ctx)
    assert idle == pytest.approx(POLICIES["positional_breakeven"].choose(ctx)[0], rel=1e-6)
    computing = ctx.recompute_seconds(0.0)
    answers = [
        POLICIES["shadow_price"].choose(ctx._replace(request_rate=rho / computing))[0] for rho in (0.1, 0.4, 0.8)
    ]
    assert answers == sorted(answers, reverse=True) and answers[-1] < idle
