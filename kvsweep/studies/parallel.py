"""A few independent simulations in threads: the core runs outside Python's lock."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

J = TypeVar("J")
R = TypeVar("R")


Progress = Callable[[int, int], None]
"""Called with the jobs done and the jobs in all."""


def in_threads(
    one: Callable[[J], R], jobs: Sequence[J], threads: int | None = None, progress: Progress | None = None
) -> list[R]:
    """Return ``one(job)`` of each job in order; the first runs alone, so that what it compiles is compiled once."""
    if not jobs:
        return []
    found = []
    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
        for result in itertools.chain([one(jobs[0])], pool.map(one, jobs[1:])):
            found.append(result)
            if progress is not None:
                progress(len(found), len(jobs))
    return found
