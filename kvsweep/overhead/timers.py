"""The three ways a decision is run, each timed over a stream of requests and over one request again and again.

Every timer has the same two methods, and so have the loops without a decision, whose time is subtracted.

The clock is the processor time of this thread: what other processes take meanwhile is none of the decision's cost.
Reading it takes 0.6 us, so the shortest streams are timed by the wall clock (0.07 us), and the median of many trials
drops the interrupted ones. What reading the clock takes is subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice, repeat
from time import perf_counter, thread_time
from typing import Any, Protocol

import numpy as np

from kvsweep.policies.context import Context

COPIES = 256
"""Copies of a request a compiled loop turns around in; their fields stay in the first-level cache."""
SHORT = 100
"""Decisions up to which a stream is timed by the wall clock."""
EPSILON = float(np.finfo(np.float64).eps)

Fields = np.ndarray[Any, Any]


class Clock:
    """A clock that knows what reading it takes."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.cost = float(np.median([-now() + now() for _ in range(1000)]))


WALL, CPU = Clock(perf_counter), Clock(thread_time)


class Timer(Protocol):
    """Something that decides requests of the pool and says how long that took."""

    def stream(self, first: int, count: int) -> float:
        """Return the time [s] of `count` decisions over the pool in turn, from request `first` on."""
        ...

    def combination(self, index: int, count: int) -> float:
        """Return the time [s] of `count` decisions of the one request `index`."""
        ...


class PythonTimer:
    """Calls `decide`, compiled or not, from a Python loop; without one it times the loop alone."""

    def __init__(self, decide: Callable[[Context], Any] | None, requests: Sequence[Context]) -> None:
        self._decide = decide
        self._requests = requests
        # Twice around, so that a short stream from anywhere is one slice.
        self._twice = [*requests, *requests]

    def stream(self, first: int, count: int) -> float:
        """Return the time [s] of `count` decisions over the pool in turn, from request `first` on."""
        once = self._twice[first : first + min(count, len(self._requests))]
        return self._time(once if count == len(once) else islice(cycle(once), count), _clock(count))

    def combination(self, index: int, count: int) -> float:
        """Return the time [s] of `count` decisions of the one request `index`."""
        return self._time(repeat(self._requests[index], count), CPU)

    def _time(self, requests: Iterable[Context], clock: Clock) -> float:
        decide, now = self._decide, clock.now
        if decide is None:
            start = now()
            for _ in requests:
                pass
            return now() - start - clock.cost
        start = now()
        for request in requests:
            decide(request)
        return now() - start - clock.cost


class LoopRequests:
    """The pool as arrays for compiled loops, and copies of one request of it that differ in their last bits.

    Were the copies equal, the compiler could decide once for all of them. Timers share one object, so that what
    they all decide next is made once.
    """

    def __init__(self, requests: Sequence[Context]) -> None:
        self._fields = np.array(requests, dtype=np.float64).T.copy()
        self._factors = 1.0 + EPSILON * np.arange(COPIES)
        self._turned, self._first = self._fields.copy(), 0
        self._copies, self._index = np.empty((len(self._fields), COPIES)), -1
        self.reassigned = np.empty(max(len(requests), COPIES))
        self.modes = np.empty(self.reassigned.size, dtype=np.int8)

    def turned(self, first: int) -> Fields:
        """Return the fields (field, request) of the pool, from request `first` on and around."""
        if first != self._first:
            self._turned, self._first = np.roll(self._fields, -first, axis=1), first
        return self._turned

    def copies(self, index: int) -> Fields:
        """Return the fields (field, copy) of copies of request `index`."""
        if index != self._index:
            np.multiply(self._fields[:, index, None], self._factors, out=self._copies)
            self._index = index
        return self._copies


class LoopTimer:
    """Runs `kvsweep.jit.timing.decide_many`, compiled around one policy."""

    def __init__(self, decide_many: Callable[..., None], requests: LoopRequests) -> None:
        self._many = decide_many
        self._requests = requests

    def stream(self, first: int, count: int) -> float:
        """Return the time [s] of `count` decisions over the pool in turn, from request `first` on."""
        return self._time(self._requests.turned(first), count, _clock(count))

    def combination(self, index: int, count: int) -> float:
        """Return the time [s] of `count` decisions of nearly the one request `index`."""
        return self._time(self._requests.copies(index), count, CPU)

    def _time(self, fields: Fields, count: int, clock: Clock) -> float:
        size = fields.shape[1]
        reassigned, modes = self._requests.reassigned[:size], self._requests.modes[:size]
        now = clock.now
        start = now()
        self._many(fields, count, reassigned, modes)
        return now() - start - clock.cost


def _clock(count: int) -> Clock:
    return WALL if count <= SHORT else CPU
