"""Files that are either whole or absent: writing through a temporary name, and refusing what cannot be written."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from kvsweep import signals
from kvsweep.errors import InputError, ResultError, shown


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it becomes `path`, on any failure it is removed.

    Of a symbolic link it becomes what that points to. Raises ResultError naming the file when the disk refuses it.
    """
    temporary: Path | None = None
    target = _target(path)
    try:
        temporary = _temporary(target)
        signals.UNFINISHED.add(temporary)
        yield temporary
        if threading.current_thread() is threading.main_thread():
            signals.check()
        os.replace(temporary, target)
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


def _target(path: Path) -> Path:
    """Return the file that writing `path` writes."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def check_writable(path: Path, force: bool, option: str = "--output", inputs: Iterable[str | Path] = ()) -> None:
    """Refuse `path` early, before any work, where it cannot be written, or must not be.

    It exists and `force` is off, it is one of the `inputs` (which are to survive, forced or not) or no regular file, or
    its folder cannot be written.
    """
    try:
        if path.is_dir():
            raise InputError(f"{option}: {path} is a folder; allowed: a file name")
        if path.exists() and not path.is_file():
            raise InputError(f"{option}: {path} is a device, pipe or socket; allowed: a file name")
        if path.exists() and any(is_same(path, Path(given)) for given in inputs):
            raise InputError(f"{option}: {path} is an input, too; allowed: another name")
        if path.exists() and not force:
            raise InputError(f"{option}: {path} exists; give another name, or --force to overwrite it")
        target = _target(path)
        if not target.parent.is_dir():
            raise InputError(f"{option}: the folder {target.parent} does not exist")
        # Only trying tells: root passes every access check, even on a disk that is mounted read-only.
        _temporary(target).unlink()
    except OSError as error:
        raise InputError(f"{option}: cannot write {shown(str(path))}: {error.strerror or error}") from error


def is_same(a: Path, b: Path) -> bool:
    """Return whether two paths are one file, or would be if it were written."""
    try:
        return os.path.samefile(a, b)
    except OSError:
        return os.path.realpath(a) == os.path.realpath(b)
