"""What the overhead harness times of a compiled policy; `kvsweep.jit.policies` compiles a copy of this file for each.

`decide` and `RECOMPUTES` are put into the copy's namespace before it runs, as in `kvsweep.jit.kernels`. Requests are
of the linear model.
"""

from collections.abc import Callable
from typing import Any

from kvsweep.policies.context import LINEAR, Context

decide: Callable[[Context], tuple[float, int]]
RECOMPUTES: float


def decide_one(ctx: Context) -> tuple[float, int]:
    """Return (reassigned hit blocks [block], mode code) for one request: what a caller in Python dispatches to."""
    return decide(ctx)


def decide_many(fields: Any, count: int, reassigned: Any, modes: Any) -> None:
    """Decide `count` requests, those of `fields` in turn from the first on, again and again.

    Every decision is stored, so none can be left out; every one reads its own request, so none can be moved out of
    the loop. A field of all requests lies together: with a request's fields together, loads become gathers and the
    candidate scan takes three times as long. Begun anywhere but at the first, where Numba cannot know that no index
    is negative, it takes half as long again.

    Parameters
    ----------
    fields : (field, request) in the order of `Context`
    reassigned : (request,) hit blocks recomputed [block]
    modes : (request,) codes of the decision modes
    """
    left = count
    while left > 0:
        n = min(reassigned.size, left)
        left -= n
        for j in range(n):
            ctx = Context(
                fields[0, j], fields[1, j], fields[2, j], fields[3, j], fields[4, j], fields[5, j], fields[6, j],
                fields[7, j], fields[8, j], fields[9, j], fields[10, j], fields[11, j], fields[12, j],
                fields[13, j], fields[14, j], fields[15, j], RECOMPUTES, LINEAR, 1.0, 0.0,
            )  # fmt: skip
            reassigned[j], modes[j] = decide(ctx)
