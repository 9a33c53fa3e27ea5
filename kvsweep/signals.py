"""Ctrl-C and SIGTERM end a command: by exceptions that no handling of errors takes for its own, or without asking.

The exception is raised where Python runs. Compiled code does not let it through, and foreign code may swallow it: so
whoever is about to leave a file asks `check`, and a thread ends the process where the command has not come to its end
some seconds after the signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

GRACE_SECONDS = 5.0
"""Time a command has to end by itself after a signal [s]."""
UNFINISHED: set[Path] = set()
"""Files that are being written under temporary names, which an end without asking removes."""


class Terminated(BaseException):
    """SIGTERM, as KeyboardInterrupt is Ctrl-C."""


ENDS = (KeyboardInterrupt, Terminated)
"""What ends a command: whoever catches all that foreign code may raise lets these pass."""
_RAISES: dict[int, type[BaseException]] = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_received: list[int] = []
_watched_still: list[socket.socket] = []
"""What keeps the watch over a command that was left, and not its threads."""


def exit_code(number: int) -> int:
    """Return the exit code of a command that the signal `number` ended."""
    return 128 + number


def check() -> None:
    """Raise what a signal of this command raised, where somebody swallowed it; to be asked by the main thread."""
    if _received:
        raise _RAISES[_received[0]]


def forget() -> None:
    """Take the signal that came for what it was meant to do: the command ends well."""
    _received.clear()


@contextlib.contextmanager
def ending_the_command() -> Iterator[None]:
    """Have the signals that nobody else handles end what runs within, a command in the main thread."""
    before = {number: signal.getsignal(number) for number in _RAISES}
    numbers = [number for number, handler in before.items() if handler in (signal.SIG_DFL, signal.default_int_handler)]
    _received.clear()
    if threading.current_thread() is not threading.main_thread() or not numbers:
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    woken = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    watch = threading.Thread(target=_watch, args=(ours, numbers), daemon=True)
    watch.start()
    for number in numbers:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, before[number])
        signal.set_wakeup_fd(woken)
        if _received and _others_run():  # one that is still in compiled code would hold up the end of the process
            _watched_still.append(theirs)
        else:
            theirs.close()
            watch.join()


def _others_run() -> bool:
    """Return whether there are threads that the end of the process waits for."""
    return any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())


def _raise(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    raise _RAISES[number]


def _watch(wakes: socket.socket, numbers: list[int]) -> None:
    """End the process some time after a signal of `numbers`, unless the other side is closed before."""
    with wakes:
        arrived = wakes.recv(1)
        while arrived and arrived[0] not in numbers:
            arrived = wakes.recv(1)
        if not arrived:
            return
        deadline = time.monotonic() + GRACE_SECONDS
        with contextlib.suppress(TimeoutError):
            while (left := deadline - time.monotonic()) > 0.0:
                wakes.settimeout(left)
                if not wakes.recv(64):
                    return
        _end(arrived[0])


def _end(number: int) -> None:
    """End the process now; what it was writing is gone."""
    for path in list(UNFINISHED):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        if not _watched_still:  # or the command has said so
            os.write(2, f"kvsweep: error: {_WORDS[signal.Signals(number)]}\n".encode())
    os._exit(exit_code(number))
