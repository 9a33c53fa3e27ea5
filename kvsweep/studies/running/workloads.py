"""Traces as the cells of a study need them, each made once and a few of them held."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple, TypeVar

from kvsweep.studies.running.cells import Workload
from kvsweep.studies.study import Study
from kvsweep.studies.traces import FileTrace, arriving, digest_of
from kvsweep.trace.model import Trace

T = TypeVar("T")


class Kept:
    """The results of the last few calls by key; several threads that want the same one wait for one of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.RLock()
        self._found: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is kept under `key`, made now if there is nothing."""
        with self._lock:
            if key not in self._found:
                self._found[key] = make()
                while len(self._found) > self._most:
                    self._found.popitem(last=False)
            self._found.move_to_end(key)
            found: T = self._found[key]
            return found


class Facts(NamedTuple):
    """What is known of a trace for good: its digest, its requests, whether any of them names a session.

    `longest` is the longest prompt and answer together [token].
    """

    digest: str
    requests: int
    has_sessions: bool
    longest: int


class Workloads:
    """The traces of a study at the rates and seeds of its cells; facts are held for all, traces for a few."""

    def __init__(self, study: Study, most: int = 4) -> None:
        self._study = study
        self._made, self._scaled = Kept(most), Kept(most)
        self._known: dict[Workload, Facts] = {}
        self._notes: dict[str, None] = {}  # each once, in order

    @property
    def notes(self) -> list[str]:
        """Return how the traces made so far were read, a line each."""
        return list(self._notes)

    def trace(self, wanted: Workload) -> Trace:
        """Return the trace as it arrives; raises InputError where it cannot be read or scaled."""
        return self._scaled.get(wanted, lambda: arriving(self._own(wanted), wanted.rate, wanted.scale))

    def facts(self, wanted: Workload) -> Facts:
        """Return what is known of `trace`, which is made only once for it."""
        if wanted not in self._known:
            trace = self.trace(wanted)
            self._known[wanted] = Facts(
                digest_of(trace), len(trace), trace.has_sessions, int((trace.input_tokens + trace.output_tokens).max())
            )
        return self._known[wanted]

    def know(self, workloads: Iterable[Workload]) -> None:
        """Make each of `workloads` once, those of one trace and seed in a row: in any order, few would be held."""
        for wanted in sorted(set(workloads), key=lambda one: (one.trace, one.seed)):
            self.facts(wanted)

    def _own(self, wanted: Workload) -> Trace:
        spec = self._study.traces[wanted.trace]

        def make() -> Trace:
            trace = spec.make(self._study.folder, wanted.seed)
            # What is generated has nothing to tell.
            for note in trace.notes if isinstance(spec, FileTrace) else ():
                self._notes.setdefault(f"trace {wanted.trace}: {note}")
            return trace

        return self._made.get((wanted.trace, wanted.seed), make)
