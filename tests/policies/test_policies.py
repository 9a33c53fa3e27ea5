"""Policies and their context: what decisions mean, and what must hold for any request."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsweep.policies.context import ANY, FRONT, TAIL, Context
from kvsweep.policies.outcome import outcome
from kvsweep.policies.registry import load_policies
from tests import naive

POLICIES = load_policies()


def context(side: float = ANY, **changes: float) -> Context:
    values = {
        "total_blocks": 1000.0, "miss_blocks": 100.0, "hit_blocks": 900.0, "request_rate": 0.1, "p95_seconds": 10.0,
        "storage_throughput": 100.0, "recompute_throughput": 50.0, "vram_hit_blocks": 300.0, "dram_hit_blocks": 300.0,
        "disk_hit_blocks": 300.0, "vram_throughput": 1e4, "dram_throughput": 500.0, "disk_throughput": 40.0,
        "tokens_per_block": 16.0, "token_seconds": 1e-3, "token_pair_seconds": 0.0, "recomputes": side,
    }  # fmt: skip
    return Context(**(values | changes))


@st.composite
def requests(draw: st.DrawFn) -> Context:
    rate = st.floats(1e-2, 1e7)
    held = [draw(st.just(0.0) | st.floats(1e-6, 1e6)) for _ in range(3)]
    speeds = [draw(rate) for _ in range(3)]
    hits, missing = sum(held), draw(st.floats(0.0, 1e6))
    blend = naive.blend(dict(zip(("vram", "dram", "disk"), held, strict=True)),
                        dict(zip(("vram", "dram", "disk"), speeds, strict=True)))  # fmt: skip
    return Context(
        hits + missing, missing, hits, draw(st.floats(1e-4, 1e3)), draw(st.floats(1e-3, 1e3)), blend, draw(rate),
        *held, *speeds, 16.0, 1e-3, 0.0, ANY,
    )  # fmt: skip


def sided(ctx: Context, name: str) -> Context:
    return ctx._replace(recomputes=float(("any", "front", "tail").index(POLICIES[name].recomputes)))


def granularity(ctx: Context) -> float:
    """Return the time [s] that the last bits of k stand for: hits minus k cancels where one side is far slower."""
    slowest = min(ctx.vram_throughput, ctx.dram_throughput, ctx.disk_throughput, ctx.recompute_throughput)
    return 8 * math.ulp(1.0) * ctx.total_blocks / slowest


def test_clamp() -> None:
    ctx = context()
    assert [ctx.clamp(blocks) for blocks in (-1.0, 5.0, 1e9)] == [0.0, 5.0, 900.0]
    assert math.isnan(ctx.clamp(math.nan))


def test_restore_time_of_each_side() -> None:
    whole = 300 / 1e4 + 300 / 500 + 300 / 40
    assert context(ANY).restore_seconds(400.0) == 5.0
    assert context(TAIL).restore_seconds(0.0) == whole
    assert context(TAIL).restore_seconds(400.0) == 300 / 1e4 + 200 / 500
    assert context(TAIL).restore_seconds(700.0) == 200 / 1e4
    assert context(FRONT).restore_seconds(400.0) == 200 / 500 + 300 / 40
    assert context(FRONT).restore_seconds(700.0) == 200 / 40
    for side in (ANY, FRONT, TAIL):
        assert context(side).restore_seconds(900.0) == 0.0


def test_allocation_without_any_rate_never_ends() -> None:
    allocation = context(storage_throughput=0.0, recompute_throughput=0.0).allocation(10.0)
    assert allocation.storage_time == allocation.recompute_time == allocation.total_time == math.inf


def test_violation_is_the_worst_of_the_three_limits() -> None:
    assert context().max_violation(0.0) == 0.0
    assert context(p95_seconds=4.5).max_violation(0.0) == 1.0
    assert context(request_rate=1.0).max_violation(0.0) == 8.0
    assert context(request_rate=1.0, storage_throughput=1e9, recompute_throughput=50.0).max_violation(0.0) == 1.0


@pytest.mark.parametrize("name", POLICIES)
@given(ctx=requests())
def test_decisions_stay_within_the_hits_and_name_a_mode(name: str, ctx: Context) -> None:
    blocks, mode = POLICIES[name].decide(sided(ctx, name))
    assert 0.0 <= blocks <= ctx.hit_blocks
    assert mode in POLICIES[name].modes


@given(requests())
def test_the_balance_beats_every_other_split_of_its_kind(ctx: Context) -> None:
    """The published fact: the clamped balance already minimises time and violation; the scan changes the label."""
    best = outcome(POLICIES["performance_aware"], ctx)
    for share in (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0):
        other = ctx.allocation(ctx.hit_blocks * share)
        assert best.total_time <= other.total_time * (1 + 1e-9) + granularity(ctx)
    # With the least time comes the least violation, because all three limits scale with it.
    worst = max(0.0, best.total_time * max(1 / ctx.p95_seconds, ctx.request_rate) - 1.0)
    assert math.isclose(best.max_violation, worst, rel_tol=1e-9, abs_tol=1e-9)


@given(requests())
def test_closed_forms_of_the_reference_policies(ctx: Context) -> None:
    x, y, n, m, h = (
        ctx.storage_throughput,
        ctx.recompute_throughput,
        ctx.total_blocks,
        ctx.miss_blocks,
        ctx.hit_blocks,
    )
    assert math.isclose(outcome(POLICIES["default_policy"], ctx).total_time, max(h / x, m / y), rel_tol=1e-9)
    assert math.isclose(outcome(POLICIES["all_compute"], ctx).total_time, n / y, rel_tol=1e-9)
    if h > 0.0:
        balanced = outcome(POLICIES["performance_aware"], ctx).total_time
        assert math.isclose(balanced, max(n / (x + y), m / y), rel_tol=1e-9, abs_tol=granularity(ctx))


@given(requests())
def test_slowest_tier_first_beats_every_other_tail(ctx: Context) -> None:
    ctx = sided(ctx, "slowest_tier_first")
    best = outcome(POLICIES["slowest_tier_first"], ctx)
    for step in range(33):
        other = ctx.allocation(ctx.hit_blocks * step / 32).total_time
        assert best.total_time <= other * (1 + 1e-9) + granularity(ctx)


@given(requests())
def test_slowest_tier_first_equals_bisection(ctx: Context) -> None:
    tiers = ("vram", "dram", "disk")
    point = {
        "held": {tier: getattr(ctx, f"{tier}_hit_blocks") for tier in tiers},
        "rate": {tier: getattr(ctx, f"{tier}_throughput") for tier in tiers} | {"recompute": ctx.recompute_throughput},
        "total": ctx.total_blocks, "miss": ctx.miss_blocks, "blend": ctx.storage_throughput,
        "r": ctx.request_rate, "p": ctx.p95_seconds,
    }  # fmt: skip
    k, mode = naive.decide("slowest_tier_first", point)
    ctx = sided(ctx, "slowest_tier_first")
    blocks, label = POLICIES["slowest_tier_first"].decide(ctx)
    if mode == label:
        expected = naive.judge(point, k, tail=True)["total_time"]
        assert math.isclose(ctx.allocation(blocks).total_time, expected, rel_tol=1e-9, abs_tol=granularity(ctx))
    else:  # restore and recompute balance within rounding at k = 0
        assert math.isclose(ctx.restore_seconds(0.0), ctx.miss_blocks / ctx.recompute_throughput, rel_tol=1e-9)


def test_the_published_example_of_the_tail() -> None:
    import kvsweep

    row = kvsweep.simulate(
        stack="h200", total_blocks=200_000, miss_blocks=500, placement="auto", request_rate=0.02, p95_seconds=10
    )["results"][0]
    assert round(row["performance_aware"]["total_time"], 3) == 19.097
    assert round(row["slowest_tier_first"]["total_time"], 3) == 8.541
    assert not row["performance_aware"]["meets_slo"] and row["slowest_tier_first"]["meets_slo"]


def test_idle_requests_pass_everywhere() -> None:
    idle = context(total_blocks=0.0, miss_blocks=0.0, hit_blocks=0.0, vram_hit_blocks=0.0, dram_hit_blocks=0.0,
                   disk_hit_blocks=0.0)  # fmt: skip
    for name, policy in POLICIES.items():
        result = outcome(policy, sided(idle, name))
        assert (result.total_time, result.meets_slo, result.success_rate) == (0.0, True, 1.0)
