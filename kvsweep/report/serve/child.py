"""A process that computes for the server, and can be ended where compiled code comes to no end of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from kvsweep.report.serve import limits

T = TypeVar("T")

ORPHAN_SECONDS = 5
"""How much later than by its server a computation is ended by the alarm, where there is no server any more [s]."""


class Ended(Exception):
    """The process ended before it answered; the message says why."""


class Child:
    """Computes in a process of its own, one computation after the other; it is started when first needed.

    A thread cannot be ended, and one that is stuck in a policy's compiled code would hold its turn for good.
    """

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, compute: Callable[..., T], *arguments: Any) -> T:
        """Return ``compute(*arguments)``, a function of a module; what it raises is raised here.

        Raises Ended where there is no answer within `limits.MAX_COMPUTE` or the process is gone. The next computation
        starts another process.
        """
        pipe = self._running()
        try:
            pipe.send((compute, arguments, int(limits.MAX_COMPUTE) + ORPHAN_SECONDS))
            if not pipe.poll(limits.MAX_COMPUTE):
                raise Ended(f"the computation did not end within {limits.MAX_COMPUTE:g} s and was ended")
            done, answer = pipe.recv()
        except BaseException as error:
            self.end()
            if isinstance(error, EOFError | OSError):
                raise Ended("the process that computes ended without an answer") from None
            raise
        if not done:
            raise answer
        return answer  # type: ignore[no-any-return]

    def end(self) -> None:
        """End the process, whatever it is at."""
        if self._process is not None and self._pipe is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process = self._pipe = None

    def _running(self) -> Connection:
        if self._process is not None and not self._process.is_alive():
            self.end()
        if self._pipe is None:
            # Not forked: the threads of the server may hold locks that nobody would release in a copy.
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        return self._pipe


def _serve(pipe: Connection) -> None:
    """Answer what comes through `pipe` until the server closes it or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's, which ends this process
    with contextlib.suppress(EOFError, OSError):
        while True:
            compute, arguments, seconds = pipe.recv()
            signal.alarm(seconds)
            answer = _answered(compute, arguments)
            signal.alarm(0)
            pipe.send(answer)


def _answered(compute: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        return True, compute(*arguments)
    except Exception as error:
        return False, error
