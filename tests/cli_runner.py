"""Running the whole command line in this process, and what every refusal has in common."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner, Result

from kvsweep.cli import main

GOOD_POLICY = """
name, label, description, color, order = "mine", "Mine", "Recomputes half.", "#123456", 50
recomputes, modes = "any", ("half",)
def decide(ctx):
    return 0.5 * ctx.hit_blocks, "half"
"""


def run(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], env=env)


def done(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Result:
    """Return the result of a command that must succeed."""
    result = run(*arguments, env=env)
    assert result.exit_code == 0, result.stderr
    return result


def refused(*arguments: str | Path, code: int = 2) -> str:
    """Return the message of a command that must fail: one line, nothing on stdout, no traceback."""
    result = run(*arguments)
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("kvsweep: error: "), lines
    return lines[0].removeprefix("kvsweep: error: ")
