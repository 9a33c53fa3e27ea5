"""The user's cache directory: derived files that may vanish at any time, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def cache_directory(kind: str) -> Path:
    """Return the folder for cached files of one `kind`: in ``KVSWEEP_CACHE_DIR``, else the user's cache directory."""
    base = os.environ.get("KVSWEEP_CACHE_DIR")
    if base:
        return Path(base) / kind
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvsweep" / kind
    except RuntimeError:  # a user without a home: a folder that cannot be made, so that nothing is kept
        return Path(os.devnull) / kind


@contextlib.contextmanager
def alone(kind: str, key: str) -> Iterator[None]:
    """Let one process at a time make what is cached as `key`, so that the others find it made; where files can lock."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, ImportError):
            import fcntl  # not on Windows

            folder = cache_directory(kind)
            folder.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context((folder / f"{key}.lock").open("w")), fcntl.LOCK_EX)
        yield


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path` by way of a temporary name, so that no other process reads half of it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(data)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
