"""What the API answers, apart from HTTP: the catalog, a simulation, a packed sweep."""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvsweep.catalog.load import Catalog, load
from kvsweep.errors import InputError
from kvsweep.grid.plan import make_plan
from kvsweep.grid.simulate import simulate_plan, simulation_plan
from kvsweep.grid.sweep import run_plan
from kvsweep.policies.registry import PolicySet, load_policies
from kvsweep.report.payload import pack
from kvsweep.report.serve.child import Child, Ended
from kvsweep.report.serve.describe import describe
from kvsweep.report.serve.limits import MAX_POINTS, MAX_ROWS, MAX_WAIT

Values = dict[str, Any]
Answering = Callable[[Mapping[str, Any]], "tuple[Values, Timings]"]


class Unavailable(Exception):
    """The server itself cannot answer at the moment, whatever the request; the message is one line."""


class Engine:
    """Computes on the policies and the catalog this server was started with.

    Policy files and overlay directories are read anew for every answer, so that an edit shows at once.
    """

    def __init__(self, policy_files: Sequence[Path], hardware: Sequence[Path]) -> None:
        self._policy_files = list(policy_files)
        self._hardware = list(hardware)
        self._turn = threading.Lock()
        self._child = Child()

    def check(self) -> PolicySet:
        """Return the policies; raises InputError naming the option for a file or directory that cannot be used."""
        self._catalog()
        return self._policies()

    def catalog(self) -> Values:
        """Return what there is to choose from."""
        with _own_problems():
            return describe(self._catalog(), self._policies())

    def simulate(self, body: Mapping[str, Any]) -> tuple[Values, Timings]:
        """Return what `kvsweep.simulate` does for `body`, and how long it took."""
        return self._computed(_simulated, body)

    def sweep(self, body: Mapping[str, Any]) -> tuple[Values, Timings]:
        """Return the payload of `kvsweep.sweep` for `body` as a report embeds it, and how long each step took."""
        return self._computed(_swept, body)

    def _computed(self, compute: Answering, body: Mapping[str, Any]) -> tuple[Values, Timings]:
        """Return what `compute` answers, where policies of files take part from a process that can be ended.

        The built-in policies end, within the limits of a request.
        """
        with self._computing():
            if not self._policy_files:
                return compute(self._options(body))
            try:
                return self._child.ask(compute, self._options(body))
            except Ended as error:
                raise Unavailable(f"{error}; a policy of --policy-file may come to no end") from error

    def _options(self, body: Mapping[str, Any]) -> Values:
        return {**body, "policy_files": self._policy_files, "hardware": self._hardware}

    def _catalog(self) -> Catalog:
        return load(self._hardware, "--hardware")

    def _require_files(self) -> None:
        if missing := [file for file in self._policy_files if not file.is_file()]:
            raise InputError(f"--policy-file: {missing[0]}: no such file")

    def _policies(self) -> PolicySet:
        self._require_files()
        return load_policies(self._policy_files)

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        """Take this computation's turn, after checking that the server's own files can still be read."""
        if not self._turn.acquire(timeout=MAX_WAIT):
            raise Unavailable("busy with other computations; try again")
        try:
            with _own_problems():
                self._catalog()
                self._require_files()
            yield
        finally:
            self._turn.release()


def _simulated(options: Mapping[str, Any]) -> tuple[Values, Timings]:
    timings = Timings()
    plan = simulation_plan(options, None, MAX_ROWS)
    timings.lap("plan")
    result = simulate_plan(plan)
    timings.lap("evaluate")
    return result, timings


def _swept(options: Mapping[str, Any]) -> tuple[Values, Timings]:
    timings = Timings()
    plan = make_plan(options, None, MAX_POINTS)
    timings.lap("plan")
    ds = run_plan(plan)
    timings.lap("evaluate")
    payload = pack(ds, MAX_POINTS)
    planes = {name: base64.b64encode(raw).decode("ascii") for name, raw in payload.planes.items()}
    timings.lap("pack")
    warnings = str(ds.attrs.get("kvsweep_warnings", "")).splitlines()
    return {"header": payload.header, "planes": planes, "warnings": warnings}, timings


class Timings:
    """How long the steps of an answer took [s]."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, step: str) -> None:
        """Note the time since the step before as that of `step`."""
        now = time.perf_counter()
        self.steps[step] = now - self._last
        self._last = now

    def header(self) -> str:
        """Return the value of a Server-Timing header, in milliseconds as it wants them."""
        steps = {**self.steps, "total": sum(self.steps.values())}
        return ", ".join(f"{step};dur={1e3 * seconds:.3f}" for step, seconds in steps.items())


@contextlib.contextmanager
def _own_problems() -> Iterator[None]:
    """Turn what is wrong with the server's own files into `Unavailable`: no request can mend it."""
    try:
        yield
    except InputError as error:
        raise Unavailable(str(error)) from error
