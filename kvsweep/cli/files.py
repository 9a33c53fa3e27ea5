"""The one rule for files that commands write: never one they read, nor each other's, and checked before any work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kvsweep.errors import InputError

Outputs = Mapping[str, "Path | Sequence[Path] | None"]
"""Files to write by the option that names them."""


def check_outputs(outputs: Outputs, force: bool, read: Iterable[Path] = ()) -> None:
    """Refuse early `outputs` that cannot be written, or must not be.

    Inputs are the files that any other option or argument of the running command names, and what else is `read`:
    files named in files.
    """
    from kvsweep.results.files import check_writable, is_same

    inputs = [*read, *_named(click.get_current_context(), outputs)]
    written: list[tuple[str, Path]] = []
    for option, paths in outputs.items():
        for path in [paths] if isinstance(paths, Path) else paths or ():
            check_writable(path, force, option, inputs)
            for other, taken in written:
                if is_same(path, taken):
                    raise InputError(f"{option}: {path} is what {other} writes, too; allowed: another name")
            written.append((option, path))


def check_page(option: str, path: Path) -> None:
    """Refuse a path whose suffix says that it is no place for an HTML page."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{option}: {path} does not end in .html; allowed: .html, .htm")


def _named(ctx: click.Context, outputs: Outputs) -> Iterator[Path]:
    """Yield what the command is told to read: every option and argument that names a file, but for the `outputs`."""
    for param in ctx.command.params:
        if outputs.keys().isdisjoint(param.opts):
            yield from _paths(ctx.params.get(param.name or ""))


def _paths(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif isinstance(value, str):
        yield from (Path(text) for text in (value, value.partition("=")[2]) if text)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _paths(item)
