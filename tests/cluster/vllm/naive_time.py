"""The slow twin of the vLLM worker's step time: the formulas of kvsweep/cluster/vllm/README.md, by recursion."""

from __future__ import annotations

from collections.abc import Sequence

from kvsweep.cluster.vllm.steptime import CAPTURED_SAVING, SPLIT_BELOW, STEP_OVERHEAD, StepTimes


def between(axes: Sequence[Sequence[float]], values: Sequence[float], at: Sequence[float]) -> float:
    """Return the value of a table at a point: linear along the first axis, the rest by recursion."""
    if not axes:
        return float(values[0])
    axis, rest = list(axes[0]), len(values) // len(axes[0])
    below = [i for i in range(len(axis) - 1) if axis[i] < at[0]] or [0]
    i = below[-1]
    low = between(axes[1:], values[i * rest : (i + 1) * rest], at[1:])
    high = between(axes[1:], values[(i + 1) * rest : (i + 2) * rest], at[1:])
    share = (at[0] - axis[i]) / (axis[i + 1] - axis[i])
    return low * (1 - share) + high * share


def attention_at(t: StepTimes, *at: float) -> float:
    """Return the attention table at (chunk, prior, decodes, context)."""
    return max(between([t.chunk, t.prior, t.decodes, t.context], list(t.attention_seconds), at), 0.0)


def share_of_longest(t: StepTimes, decodes: float, chunk: float, batch: float) -> float:
    """Return alpha of rules 13 and 14."""
    n, q = list(t.skew_decodes), list(t.skew_chunk)
    rows = list(range(len(n)))
    limit = t.scalars[SPLIT_BELOW]
    if chunk == 0 and n[0] < limit <= n[-1]:
        rows = [i for i in rows if (n[i] < limit) == (batch < limit)]
    columns = [0] if chunk == 0 else list(range(1, len(q)))

    def clamp(x: float, axis: list[float]) -> float:
        return min(max(x, axis[0]), axis[-1])

    def along(column: int) -> float:
        axis = [n[i] for i in rows]
        values = [float(t.skew[i * len(q) + column]) for i in rows]
        return values[0] if len(axis) == 1 else between([axis], values, [clamp(decodes, axis)])

    axis = [q[j] for j in columns]
    values = [along(j) for j in columns]
    return values[0] if len(axis) == 1 else between([axis], values, [clamp(chunk, axis)])


def step_seconds(t: StepTimes, contents: Sequence[tuple[int, int]]) -> float:
    """Return the time [s] of a step of requests that run (tokens, tokens before)."""
    total = sum(tokens for tokens, _ in contents)
    bigger = [size for size in t.graphs if size >= total]
    batch = min(bigger) if bigger else total
    chunks = [pair for pair in contents if pair[0] > 1]
    contexts = [before for tokens, before in contents if tokens == 1]
    mean = sum(contexts) / len(contexts) if contexts else 0.0
    q = float(sum(tokens for tokens, _ in chunks))
    prior = sum(tokens * (before + tokens / 2) for tokens, before in chunks) / q - q / 2 if chunks else 0.0
    attention = attention_at(t, q, max(prior, 0.0), len(contexts), mean)
    if prior < 0:
        step = t.prior[-1] / 16
        slope = (attention_at(t, q, step, 0, 0) - attention_at(t, q, 0, 0, 0)) / step
        attention = max(attention + slope * prior, attention / 2)
    if len(contexts) > 1 and len(t.skew):
        longest = attention_at(t, q, max(prior, 0.0), len(contexts), max(contexts))
        equal = attention_at(t, q, max(prior, 0.0), len(contexts), mean)
        attention += share_of_longest(t, len(contexts), q, batch) * max(longest - equal, 0.0)
    seconds = between([t.tokens], list(t.token_seconds), [batch]) + attention + t.scalars[STEP_OVERHEAD]
    seconds += between([t.sequences], list(t.sequence_seconds), [len(contents)])
    return float(seconds - t.scalars[CAPTURED_SAVING] * bool(bigger))
