"""Policies that calibrate the overhead harness: no decision, one decision several times, and hand-inlined twins."""

from __future__ import annotations

from pathlib import Path

COUNTS = (1, 2, 4, 8)

NO_DECISION = """
name, label, description, color, order = "no_decision", "No decision", "Decides nothing.", "#888888", 90
recomputes, modes = "any", ("nothing",)


def decide(ctx):
    return 0.0, "nothing"
"""

# Each decision depends on the one before by less than a bit, which the compiler cannot know: equal decisions of
# equal requests it would make once.
_TIMES = """
from kvsweep.policies.context import Context
from kvsweep.policies.performance_aware import decide as decide_once

name, label, description, color, order = "times_{count}", "{count} times", "Decides {count} times.", "#666666", 9{count}
recomputes, modes = "any", ("balanced", "best_effort")


def after(ctx, blocks):
    return Context(
        ctx.total_blocks + 1e-30 * blocks, ctx.miss_blocks, ctx.hit_blocks, ctx.request_rate, ctx.p95_seconds,
        ctx.storage_throughput, ctx.recompute_throughput, ctx.vram_hit_blocks, ctx.dram_hit_blocks,
        ctx.disk_hit_blocks, ctx.vram_throughput, ctx.dram_throughput, ctx.disk_throughput, ctx.tokens_per_block,
        ctx.token_seconds, ctx.token_pair_seconds, ctx.recomputes,
    )


def decide(ctx):
    answer = 1.0, "balanced"
{decisions}    return answer
"""

# performance_aware by hand, all in one function: the arithmetic of the shipped one.
INLINED = """
name, label, description, color, order = "inlined", "Inlined by hand", "The scan, inlined.", "#444444", 91
recomputes, modes = "any", ("balanced", "best_effort")
INFINITY = float("inf")


def decide(ctx):
    total, misses, hits = ctx.total_blocks, ctx.miss_blocks, ctx.hit_blocks
    rate, target = ctx.request_rate, ctx.p95_seconds
    storage, recompute = ctx.storage_throughput, ctx.recompute_throughput
    if hits <= 0.0 or recompute <= 0.0:
        balanced = 0.0
    elif storage <= 0.0:
        balanced = hits
    else:
        balanced = total * recompute / (storage + recompute) - misses
        balanced = 0.0 if balanced < 0.0 else (hits if balanced > hits else balanced)
    restored = (hits - balanced) / storage if storage > 0.0 else INFINITY
    computed = (misses + balanced) / recompute if recompute > 0.0 else INFINITY
    time = restored if restored > computed else computed
    latency, busy = time / target - 1.0, rate * time - 1.0
    if (busy if busy > latency else latency) <= 0.0:
        return balanced, "balanced"
    best, least = balanced, INFINITY
    for k in (
        0.0, hits, balanced, recompute / rate - misses, target * recompute - misses, hits - storage / rate,
        hits - target * storage,
    ):
        k = 0.0 if k < 0.0 else (hits if k > hits else k)
        restored = (hits - k) / storage if storage > 0.0 else INFINITY
        computed = (misses + k) / recompute if recompute > 0.0 else INFINITY
        time = restored if restored > computed else computed
        if time < least:
            best, least = k, time
    return best, "best_effort"
"""

# The reference's algorithm to the letter: candidates ranked by violation first, then by time.
RANKED = (
    INLINED.replace('"inlined", "Inlined by hand"', '"ranked", "Ranked by violation"')
    .replace("best, least = balanced, INFINITY", "best, least, worst = balanced, INFINITY, INFINITY")
    .replace(
        "        if time < least:\n            best, least = k, time\n",
        "        latency, busy = time / target - 1.0, rate * time - 1.0\n"
        "        violation = busy if busy > latency else latency\n"
        "        violation = violation if violation > 0.0 else 0.0\n"
        "        if violation < worst or (violation == worst and time < least):\n"
        "            best, least, worst = k, time, violation\n",
    )
)


def times(count: int) -> str:
    """Return the source of a policy that runs the decision of `performance_aware` `count` times."""
    return _TIMES.format(count=count, decisions="    answer = decide_once(after(ctx, answer[0]))\n" * count)


def written(folder: Path, **sources: str) -> list[Path]:
    """Return the files of policies written into `folder`, one for each of `sources`."""
    files = []
    for name, source in sources.items():
        file = folder / f"{name}.py"
        file.write_text(source)
        files.append(file)
    return files


def calibrating(folder: Path) -> list[Path]:
    """Return the files of all policies of this module, written into `folder`."""
    repeated = {f"times_{count}": times(count) for count in COUNTS}
    return written(folder, no_decision=NO_DECISION, inlined=INLINED, ranked=RANKED, **repeated)
