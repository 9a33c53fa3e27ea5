"""Files that are either whole or absent: writing through a temporary name, and refusing what cannot be written."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

from kvsweep import signals
from kvsweep.errors import InputError, ResultError, shown


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it becomes `path`, on any failure it is removed.

    Raises ResultError naming the file when the disk refuses it.
    """
    temporary: Path | None = None
    try:
        temporary = _temporary(path)
        signals.UNFINISHED.add(temporary)
        yield temporary
        if threading.current_thread() is threading.main_thread():
            signals.check()
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:  # netCDF4 reports a full disk as RuntimeError
        raise ResultError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
            signals.UNFINISHED.discard(temporary)


def _temporary(path: Path) -> Path:
    """Return a fresh empty file beside `path`, on the same disk, so that it can be renamed to it."""
    # Not `tempfile`, whose files nobody else may read: the system takes the umask off, which only all threads of a
    # process could learn, and change, together.
    temporary = path.with_name(f".kvsweep-{secrets.token_hex(8)}{path.suffix}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return temporary


def check_writable(path: Path, force: bool, option: str = "--output") -> None:
    """Refuse `path` early, before any work: it exists and `force` is off, or its folder cannot be written."""
    try:
        if path.is_dir():
            raise InputError(f"{option}: {path} is a folder; allowed: a file name")
        if path.exists() and not force:
            raise InputError(f"{option}: {path} exists; give another name, or --force to overwrite it")
        if not path.parent.is_dir():
            raise InputError(f"{option}: the folder {path.parent} does not exist")
        # Only trying tells: root passes every access check, even on a disk that is mounted read-only.
        _temporary(path).unlink()
    except OSError as error:
        raise InputError(f"{option}: cannot write {shown(str(path))}: {error.strerror or error}") from error
