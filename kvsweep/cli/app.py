"""The `kvsweep` group: subcommands imported when named, every failure one line and an exit code.

Exit codes: 0 done, 1 could not be finished, 2 input that cannot be used, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

import kvsweep
from kvsweep import signals
from kvsweep.errors import InputError, ResultError, printable, unknown_name

COMMANDS = {
    "catalog": "analytic", "simulate": "analytic", "sweep": "analytic", "report": "pages", "figures": "pages",
    "serve": "pages", "compare": "pages", "roofline": "analytic", "overhead": "analytic", "trace": "cluster",
    "cluster": "cluster", "warm": "cluster", "study": "studies", "calibrate": "calibration", "validate": "calibration",
}  # fmt: skip
"""The room of each subcommand, which is the click command of its own name in the module of its own name."""

INTERRUPTED = signals.exit_code(signal.SIGINT)


class _Interrupted(click.ClickException):
    """Ctrl-C, told apart from what click itself calls an abort."""

    exit_code = INTERRUPTED


class _Terminated(click.ClickException):
    """SIGTERM."""

    exit_code = signals.exit_code(signal.SIGTERM)


class _Group(click.Group):
    """A group that imports its commands when they are asked for and prints failures as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in their order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command `cmd_name`, or None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"kvsweep.cli.{COMMANDS[cmd_name]}.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return (name, command, its arguments); raises InputError with the nearest name for an unknown command."""
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing and not name.startswith("-"):
            raise unknown_name("command", name, COMMANDS)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C becomes an error of its own, since click would add an empty line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _Interrupted("interrupted") from None

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run the command line and exit with its code."""
        _reopen_closed_streams()
        arguments = list(sys.argv[1:] if args is None else args) or ["--help"]
        # Taken from the arguments themselves: it stands anywhere, and an error in them precedes every option's value.
        debug = "--debug" in arguments
        arguments = [argument for argument in arguments if argument != "--debug"]
        extra["standalone_mode"] = False
        with signals.ending_the_command():
            try:
                code = super().main(arguments, prog_name="kvsweep", **extra)
                sys.stdout.flush()
                signals.check()
            except Exception as error:
                _fail(error, debug)
            except KeyboardInterrupt:
                _fail(_Interrupted("interrupted"), debug)
            except signals.Terminated:
                _fail(_Terminated("terminated"), debug)
        sys.exit(code if isinstance(code, int) else 0)


def _reopen_closed_streams() -> None:
    """Let what is printed on a closed stdout or stderr go nowhere; Python has None in their place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open as long as the process)


def _fail(error: Exception, debug: bool) -> NoReturn:
    """Print `error` as one line, after its traceback with `debug`, and exit with its code."""
    if debug:
        traceback.print_exception(error)
    message, code = _described(error)
    try:
        sys.stdout.flush()
    except OSError:  # what is still buffered goes nowhere, instead of failing again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):  # a reader that has seen enough is no failure to report
        try:
            click.echo(f"kvsweep: error: {printable(' '.join(message.split()))}", err=True)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(code)


def _described(error: Exception) -> tuple[str, int]:
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, click.Abort):
        return "interrupted", INTERRUPTED
    if isinstance(error, InputError):
        return str(error), 2
    if isinstance(error, ResultError):
        return str(error), 1
    if isinstance(error, MemoryError):
        return "out of memory; try fewer points, or of a sweep a reduction that streams (kvsweep sweep --reduce)", 1
    if isinstance(error, OSError):
        return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 1
    return f"unexpected {type(error).__name__}: {error} (this is a bug; --debug shows where)", 1


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Errors are one line and exit code 2 for input that cannot be used, 1 for work that failed.",
)
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error; stands anywhere.")
@click.version_option(kvsweep.__version__, prog_name="kvsweep", message="%(prog)s %(version)s")
def main() -> None:
    """Sweep and simulate LLM KV-cache hierarchies: restore or recompute, which tiers, which policy."""
