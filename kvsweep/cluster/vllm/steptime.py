"""Time of a step of a vLLM worker from the tables of its profile; the formulas are in ``README.md``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsweep.cluster.vllm import columns as c

Floats = NDArray[np.float64]


class StepTimes(NamedTuple):
    """Tables of a profile; times [s] are those of a whole step, all layers together."""

    tokens: Floats
    token_seconds: Floats
    """Everything but attention and the head, by tokens of the step."""
    sequences: Floats
    sequence_seconds: Floats
    """Head and sampler, by requests of the step."""
    chunk: Floats
    prior: Floats
    decodes: Floats
    context: Floats
    attention_seconds: Floats
    """Attention at (chunk, prior, decodes, context), the last axis fastest."""
    skew_decodes: Floats
    skew_chunk: Floats
    skew: Floats
    """Share of the way from equal to longest contexts, at (decodes, chunk), the last axis fastest."""
    graphs: Floats
    """Batch sizes with a captured graph [tokens]."""
    scalars: Floats
    """See the indices below."""


CAPTURED_SAVING = 0
"""Seconds that a captured step saves."""
STEP_OVERHEAD = 1
"""Seconds added to every step."""
SPLIT_BELOW = 2
"""Decode batches below this many sequences split their KV; 0 where not known."""
ONE_PROMPT = 3
"""1 to read all prompts of a step as one of their length after all their tokens before, to see what that costs."""
PRIOR_MEASURED = 4
"""Most tokens before a prompt chunk that were measured; the table may reach beyond."""
N_SCALARS = 5
LONGEST_STEP = 2.0**62
"""What the clock can hold [ps]."""


def step_picoseconds(t: StepTimes, graphs: Floats, step: NDArray[np.int64]) -> int:
    """Return the time of `step` [ps], at least 1 ps, where batches of the sizes `graphs` are captured."""
    tokens = padded(graphs, step[c.TOKENS])
    seconds = line(t.tokens, t.token_seconds, tokens)
    seconds += line(t.sequences, t.sequence_seconds, float(step[c.ROWS]))
    seconds += attention(t, step, tokens)
    if len(graphs) > 0 and step[c.TOKENS] <= graphs[-1]:
        seconds -= t.scalars[CAPTURED_SAVING]
    return max(1, int(min((seconds + t.scalars[STEP_OVERHEAD]) * 1e12 + 0.5, LONGEST_STEP)))


def padded(graphs: Floats, tokens: int) -> float:
    """Return the batch size that runs: that of the next captured graph, or `tokens` beyond the last."""
    if len(graphs) == 0 or tokens > graphs[-1]:
        return float(tokens)
    return float(graphs[np.searchsorted(graphs, float(tokens))])


def attention(t: StepTimes, step: NDArray[np.int64], tokens: float) -> float:
    """Return the attention of `step` [s]; `tokens` is the batch size that runs."""
    chunk = float(step[c.CHUNK])
    decodes = float(step[c.DECODES])
    mean = step[c.CONTEXT] / decodes if decodes > 0.0 else 0.0
    prior = 0.0
    if chunk > 0.0:
        # One prompt with as many query-key pairs as all prompts of the step have together.
        prior = step[c.PAIRS] / (2.0 * chunk) - chunk / 2.0
        if t.scalars[ONE_PROMPT] > 0.0:
            prior = float(step[c.PRIOR])
    seconds = table(t, chunk, max(prior, 0.0), decodes, mean)
    if prior < 0.0:  # several prompts have fewer pairs than one of all their tokens
        step_up = t.prior[-1] / 16.0
        slope = (table(t, chunk, step_up, 0.0, 0.0) - table(t, chunk, 0.0, 0.0, 0.0)) / step_up
        seconds = max(seconds + slope * prior, 0.5 * seconds)
    if decodes > 1.0 and len(t.skew) > 0:
        longest = table(t, chunk, max(prior, 0.0), decodes, float(step[c.LONGEST]))
        equal = table(t, chunk, max(prior, 0.0), decodes, mean)
        seconds += skew(t, decodes, chunk, tokens) * max(longest - equal, 0.0)
    return seconds


def skew(t: StepTimes, decodes: float, chunk: float, tokens: float) -> float:
    """Return the share of the way from equal to longest contexts that attention goes.

    Decode-only steps split the KV of a sequence or do not, by the batch the graph was captured for: a batch is never
    interpolated across that limit. Shares of steps with a prompt chunk begin at the smallest chunk measured.
    """
    n, width = t.skew_decodes, len(t.skew_chunk)
    low, high = 0, len(n)
    if chunk == 0.0:
        limit = t.scalars[SPLIT_BELOW]
        cut = np.searchsorted(n, limit)
        if 0 < cut < len(n):
            if tokens < limit:
                high = cut
            else:
                low = cut
        return _between(t, 0, low, high, decodes)
    column = 1
    while column < width - 2 and t.skew_chunk[column + 1] < chunk:
        column += 1
    left = _between(t, column, low, high, decodes)
    if column + 1 >= width:
        return left
    share = (chunk - t.skew_chunk[column]) / (t.skew_chunk[column + 1] - t.skew_chunk[column])
    share = min(max(share, 0.0), 1.0)
    return float(left * (1.0 - share) + _between(t, column + 1, low, high, decodes) * share)


def _between(t: StepTimes, column: int, low: int, high: int, decodes: float) -> float:
    """Return column `column` of the shares at `decodes`, over rows `low` to `high`; flat beyond them."""
    n, width = t.skew_decodes, len(t.skew_chunk)
    if decodes <= n[low]:
        return float(t.skew[low * width + column])
    i = low
    while i < high - 1 and n[i + 1] < decodes:
        i += 1
    if i >= high - 1:
        return float(t.skew[(high - 1) * width + column])
    share = (decodes - n[i]) / (n[i + 1] - n[i])
    return float(t.skew[i * width + column] * (1.0 - share) + t.skew[(i + 1) * width + column] * share)


def line(x: Floats, y: Floats, at: float) -> float:
    """Return `y` at `at`, linear between the points and continued beyond them."""
    if len(x) == 1:
        return float(y[0])
    i = min(max(int(np.searchsorted(x, at)) - 1, 0), len(x) - 2)
    return float(y[i] + (y[i + 1] - y[i]) * (at - x[i]) / (x[i + 1] - x[i]))


def table(t: StepTimes, chunk: float, prior: float, decodes: float, context: float) -> float:
    """Return the attention table at a point [s], linear along each axis and continued beyond it."""
    i, u = cell(t.chunk, chunk)
    j, v = cell(t.prior, prior)
    k, p = cell(t.decodes, decodes)
    m, q = cell(t.context, context)
    n_prior, n_decodes, n_context = len(t.prior), len(t.decodes), len(t.context)
    total = 0.0
    for corner in range(16):
        a, b, d, e = corner & 1, corner >> 1 & 1, corner >> 2 & 1, corner >> 3
        weight = (u if a else 1.0 - u) * (v if b else 1.0 - v) * (p if d else 1.0 - p) * (q if e else 1.0 - q)
        if weight != 0.0:
            row = ((i + a) * n_prior + j + b) * n_decodes + k + d
            total += weight * t.attention_seconds[row * n_context + m + e]
    return max(total, 0.0)


def cell(axis: Floats, at: float) -> tuple[int, float]:
    """Return the interval of `axis` for `at` and the share of it that lies below."""
    i = min(max(int(np.searchsorted(axis, at)) - 1, 0), len(axis) - 2)
    return i, (at - axis[i]) / (axis[i + 1] - axis[i])


def extrapolated(t: StepTimes, step: NDArray[np.int64]) -> int:
    """Return 1 if a table is read outside what was measured, else 0."""
    decodes = float(step[c.DECODES])
    mean = step[c.CONTEXT] / decodes if decodes > 0.0 else 0.0
    outside = step[c.TOKENS] > t.tokens[-1] or step[c.ROWS] > t.sequences[-1] or decodes > t.decodes[-1]
    outside = outside or step[c.CHUNK] > t.chunk[-1] or mean > t.context[-1]
    outside = outside or (step[c.CHUNK] > 0 and step[c.PRIOR] > t.scalars[PRIOR_MEASURED])
    return 1 if outside else 0
