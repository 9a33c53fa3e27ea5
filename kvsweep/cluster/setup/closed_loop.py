"""Closed loop: which request of a session waits for which, and how long its user thinks (paper/README §4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvsweep.cluster.inputs.config import ClusterConfig
from kvsweep.cluster.shared.state import Ints
from kvsweep.errors import InputError
from kvsweep.trace.model import Note, Trace

PICO = 1e12


@dataclass(frozen=True, slots=True)
class Turns:
    """The requests that follow another of their session; on the dim `turn`."""

    request: Ints
    """Ascending."""
    previous: Ints
    """The request before it in its session."""
    think: Ints
    """Time from the end of that one to the arrival of this one [ps]."""
    n_assumed: int
    """How many of these times are gaps between recorded arrivals."""

    def notes(self) -> tuple[Note, ...]:
        """Return what was assumed."""
        said = "closed loop: the think time is the gap between recorded arrivals, which holds the answer's time, too"
        return (Note("assumed", said, self.n_assumed),) if self.n_assumed else ()


def turns(trace: Trace, config: ClusterConfig, longest: float) -> Turns:
    """Return the turns of a closed loop, none in open loop.

    Raises InputError where there are none, or a session thinks for more than `longest` [s].
    """
    none = np.zeros(0, dtype=np.int64)
    if config.workload.mode == "open":
        return Turns(none, none, none, 0)
    order = np.argsort(trace.session, kind="stable")
    follows = (trace.session[order[1:]] == trace.session[order[:-1]]) & (trace.session[order[1:]] >= 0)
    request, previous = order[1:][follows], order[:-1][follows]
    if not len(request):
        raise InputError("workload: mode: closed; no request follows another of its session; allowed: open")
    stated = trace.think[request]
    if config.workload.think_seconds is not None:
        stated = np.where(np.isnan(stated), config.workload.think_seconds, stated)
    recorded = np.round(trace.arrival * PICO).astype(np.int64)
    missing = np.isnan(stated)
    seconds = np.where(missing, trace.arrival[request] - trace.arrival[previous], stated)
    total = float(np.bincount(trace.session[request], seconds).max() + trace.arrival.max())
    if not 0.0 <= total <= longest or seconds.min() < 0.0:
        raise InputError(
            f"workload: think times of a session, and the trace, last {total:.4g} s; allowed: at most {longest} s"
        )
    think = np.where(missing, recorded[request] - recorded[previous], np.round(seconds * PICO).astype(np.int64))
    by_request = np.argsort(request)
    return Turns(request[by_request], previous[by_request], think[by_request], int(missing.sum()))
