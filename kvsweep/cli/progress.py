"""How far a long command is: a bar on a terminal, a line now and then where stderr is a file or a pipe."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from kvsweep.cli.options import say

Move = Callable[[int, int], None]
"""Called with what is done, and what is to be done in all."""

EVERY = 10.0
"""Time [s] between two lines."""


@contextlib.contextmanager
def progress(label: str, quiet: bool) -> Iterator[Move | None]:
    """Yield what tells on stderr how far the work called `label` is; None where nothing is to be told.

    The first call starts the clock: what a resumed study has already, or compiles first, is no measure of its speed.
    """
    if quiet:
        yield None
    elif not sys.stderr.isatty():
        yield Lines(label).move
    else:
        with contextlib.ExitStack() as stack:
            bars: list[Any] = []

            def move(done: int, total: int) -> None:
                if not bars:
                    bars.append(stack.enter_context(
                        click.progressbar(length=total, label=label, file=sys.stderr, show_pos=True)))  # fmt: skip
                    bars[0].pos = done - 1
                bars[0].update(done - bars[0].pos)

            yield move


class Lines:
    """Says every `EVERY` seconds how far the work is, and how long the rest takes at its speed so far."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._start: tuple[float, int] | None = None
        self._told = 0.0

    def move(self, done: int, total: int | None = None) -> None:
        """Take note that `done` of `total` are done, None where nobody knows how many there will be."""
        now = time.monotonic()
        if self._start is None:
            self._start, self._told = (now, done), now
            return
        began, before = self._start
        if now - self._told < EVERY or done <= before:
            return
        self._told = now
        if total is None:
            say(f"{self._label}: {done:,}")
            return
        left = (now - began) / (done - before) * (total - done)
        say(f"{self._label}: {done:,} of {total:,}, about {left:,.0f} s left")
