"""Traces as the cells of a study need them, each made once and a few of them held."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from kvsweep.studies.running.cells import Workload
from kvsweep.studies.study import Study
from kvsweep.studies.traces import arriving, digest_of
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


class Workloads:
    """The traces of a study at the rates and seeds of its cells; digests are held for all, traces for a few."""

    def __init__(self, study: Study, most: int = 4) -> None:
        self._study = study
        self._made, self._scaled = Kept(most), Kept(most)
        self._digests: dict[Workload, str] = {}

    def trace(self, wanted: Workload) -> Trace:
        """Return the trace as it arrives; raises InputError where it cannot be read or scaled."""
        return self._scaled.get(wanted, lambda: arriving(self._own(wanted), wanted.rate, wanted.scale))

    def digest(self, wanted: Workload) -> str:
        """Return the digest of `trace`, which is made only once for it."""
        if wanted not in self._digests:
            self._digests[wanted] = digest_of(self.trace(wanted))
        return self._digests[wanted]

    def _own(self, wanted: Workload) -> Trace:
        spec = self._study.traces[wanted.trace]
        return self._made.get((wanted.trace, wanted.seed), lambda: spec.make(self._study.folder, wanted.seed))
