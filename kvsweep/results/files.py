"""Files that are either whole or absent: writing through a temporary name, and opening with a schema check."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvsweep.errors import InputError, ResultError, shown

if TYPE_CHECKING:
    import xarray as xr

SCHEMA_VERSION = 1
CHUNK_CELLS = 1 << 20


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it becomes `path`, on any failure it is removed.

    Raises ResultError naming the file when the disk refuses it.
    """
    temporary: Path | None = None
    try:
        temporary = _temporary(path)
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:  # netCDF4 reports a full disk as RuntimeError
        raise ResultError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    """Return a fresh empty file beside `path`, on the same disk, so that it can be renamed to it."""
    handle, name = tempfile.mkstemp(prefix=".kvsweep-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    return Path(name)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


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


def write_netcdf(dataset: xr.Dataset, path: Path) -> None:
    """Write `dataset` to `path` as compressed NetCDF-4, whole or not at all."""
    from xarray.backends import NetCDF4DataStore

    with replacing(path) as temporary:
        # Not `to_netcdf`: a Ctrl-C during its writing is raised where it is about to release its lock, and closing
        # the file then waits for that lock forever. Nobody else knows this file, so it needs none.
        store = NetCDF4DataStore.open(temporary, mode="w", format="NETCDF4", lock=False)
        try:
            dataset.dump_to_store(store, encoding=_encoding(dataset))
        finally:
            store.close()


def _encoding(dataset: xr.Dataset) -> dict[str, dict[str, Any]]:
    encoding: dict[str, dict[str, Any]] = {}
    for name, variable in dataset.variables.items():
        if variable.ndim and variable.dtype.kind in "fiu" and variable.size > 1024:
            # zlib reads everywhere; level 1 is nearly as small as the rest on these grids and much faster.
            encoding[str(name)] = {
                "zlib": True, "complevel": 1, "shuffle": variable.dtype.itemsize > 1,
                "chunksizes": _chunks(variable.shape), "_FillValue": None,
            }  # fmt: skip
        elif variable.dtype.kind in "fiu":
            encoding[str(name)] = {"_FillValue": None}
    return encoding


def _chunks(shape: Sequence[int]) -> tuple[int, ...]:
    """Return chunk lengths that keep whole trailing dims together up to `CHUNK_CELLS` cells."""
    chunks: list[int] = []
    cells = 1
    for length in reversed(shape):
        take = max(1, min(length, CHUNK_CELLS // cells))
        chunks.insert(0, take)
        cells *= take
    return tuple(chunks)


def open_dataset(path: str | os.PathLike[str]) -> xr.Dataset:
    """Return the Dataset in a NetCDF file that kvsweep wrote; raises InputError for anything else.

    Values are read lazily; close the Dataset or use it as a context manager.
    """
    import xarray as xr

    import kvsweep.results.accessor  # noqa: F401  (registers ds.kvsweep)

    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    try:
        dataset = xr.open_dataset(file, engine="netcdf4")
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{file}: not a NetCDF file kvsweep can read: {error}") from error
    version = dataset.attrs.get("kvsweep_schema_version")
    if str(version) != str(SCHEMA_VERSION):  # of any type: the file may be somebody else's
        dataset.close()
        found = (
            "it has no kvsweep_schema_version"
            if version is None
            else f"its schema version is {shown(str(version))[1:-1]}"
        )
        raise InputError(f"{file}: not a result of this kvsweep: {found}; allowed: schema version {SCHEMA_VERSION}")
    return dataset
