"""Options of every command that reads a trace: what the file does not say, or says wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvsweep.cli.options import given_options, say
from kvsweep.errors import InputError, shown
from kvsweep.trace.formats import FORMATS
from kvsweep.trace.options import MAX_BLOCK_SIZE, SESSION_MEANINGS, TIME_UNITS
from kvsweep.units import parse_quantity

if TYPE_CHECKING:
    from kvsweep.trace.model import Trace
    from kvsweep.trace.options import ReadOptions

F = TypeVar("F", bound=Callable[..., Any])
ALIAS = "--format"
"""Another name of --from, where it is not the form of the result."""
FORMATS_HELP = (
    "\b\nFormats (--from; found by itself if not given):\n"
    + "\n".join(f"  {name:<9} {each.what}" for name, each in FORMATS.items())
    + "\nA folder of files is one trace. gzip is unpacked; .zst and parquet need: pip install 'kvsweep[data]'."
)


def quantity(unit: str, low: float = 0.0) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    """Return the callback that reads a number in `unit` greater than `low`."""

    def callback(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
        if text is None:
            return None
        number = parse_quantity(text, unit, param.opts[0])
        if not (low < number < 1e12):
            raise InputError(f"{param.opts[0]}: {shown(text)} is out of range; allowed: more than {low:g}, below 1e12")
        return number

    return callback


def decorated(options: Sequence[Callable[[Any], Any]]) -> Callable[[F], F]:
    """Return the decorator that adds `options` in their order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


seed_option = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of all chance.")


def told_options(*aliases: str) -> Callable[[F], F]:
    """Return the decorator that adds what a command may be told of a trace; `aliases` are other names of --from.

    The values go to `told`.
    """
    return decorated(
        (
            click.option("--from", *aliases, "format", type=click.Choice(list(FORMATS)), help="Format of the trace."),
            click.option("--time-unit", type=click.Choice(TIME_UNITS), help="Unit of the file's times."),
            click.option("--block-size", type=click.IntRange(1, MAX_BLOCK_SIZE), metavar="TOKENS",
                         help="Size of the KV blocks the file names, or that token ids are hashed into (16)."),
            click.option("--sessions", type=click.Choice(SESSION_MEANINGS),
                         help="What prompts of a session hold: all, or what is new after the turn before."),
            click.option("--output-tokens", type=click.IntRange(1, 10**8), metavar="TOKENS",
                         help="Length of answers the file does not state."),
            click.option("--characters-per-token", metavar="NUMBER", callback=quantity("1"),
                         help="Take in prompts of which the file has the text: so many characters are a token."),
            click.option("--session-rate", metavar="NUMBER", callback=quantity("1/s"), show_default="1/min",
                         help="Rate at which sessions start (Poisson) in files that do not say when (agent) [1/s]."),
        )
    )  # fmt: skip


TOLD = ("format", "time_unit", "block_size", "sessions", "output_tokens", "characters_per_token", "session_rate")
"""Names of the parameters of `told_options`."""


def read_options(*aliases: str) -> Callable[[F], F]:
    """Return the decorator that adds FILE and what may be told of it; `aliases` are other names of --from."""
    file = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
    return decorated((file, told_options(*aliases), seed_option))


def taken_out(given: dict[str, Any], seed: int = 0) -> ReadOptions:
    """Return what a command was told of its trace, taken out of the parameters `given`."""
    from kvsweep.trace.options import ReadOptions

    told: Mapping[str, Any] = {name: given.pop(name) for name in TOLD}
    return ReadOptions(seed=seed, **given_options(told))


def tell_notes(file: Path, trace: Trace) -> None:
    """Say on stderr how a trace was read."""
    for note in trace.notes:
        say(f"{file}: {note}")
