"""A few independent simulations in threads: the core runs outside Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

J = TypeVar("J")
R = TypeVar("R")


def in_threads(one: Callable[[J], R], jobs: Sequence[J], threads: int | None = None) -> list[R]:
    """Return ``one(job)`` of each job in order; the first runs alone, so that what it compiles is compiled once."""
    if not jobs:
        return []
    first = one(jobs[0])
    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
        return [first, *pool.map(one, jobs[1:])]
