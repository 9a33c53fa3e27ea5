"""NetCDF files: writing them whole, opening them with a schema check, and the one lock around every use of netCDF.

Neither netCDF nor HDF5 below it is thread-safe, not even on different files: two threads in them at a time crash the
process or write what nobody gave them. Whatever touches netCDF stands in this module and takes `LOCK`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvsweep.errors import InputError, shown
from kvsweep.results.files import replacing

if TYPE_CHECKING:
    import xarray as xr

SCHEMA_VERSION = 1
CHUNK_CELLS = 1 << 20
CHECKED_CELLS = 1024
"""Cells from which on a variable is compressed and has a checksum."""


class _Lock:
    """A lock of the process that a thread may take again while it has it; with it goes xarray's own.

    So whoever uses netCDF through xarray alone waits, too. Opened Datasets hold it for their lazy reading; copied or
    pickled they share it.
    """

    def __init__(self) -> None:
        self._mine = threading.RLock()
        self._depth = 0

    def acquire(self, blocking: bool = True) -> bool:
        """Take the lock; return whether that could be done."""
        from xarray.backends.netCDF4_ import NETCDF4_PYTHON_LOCK

        if not self._mine.acquire(blocking):
            return False
        if self._depth == 0:
            taken = False
            try:
                taken = NETCDF4_PYTHON_LOCK.acquire(blocking=blocking)
            finally:  # a Ctrl-C that ends the waiting leaves nothing locked
                if not taken:
                    self._mine.release()
            if not taken:
                return False
        self._depth += 1
        return True

    def release(self) -> None:
        """Give the lock back."""
        from xarray.backends.netCDF4_ import NETCDF4_PYTHON_LOCK

        self._depth -= 1
        if self._depth == 0:
            NETCDF4_PYTHON_LOCK.release()
        self._mine.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def __reduce__(self) -> str:
        return "LOCK"


LOCK = _Lock()
"""The lock around every use of netCDF."""


def write_netcdf(dataset: xr.Dataset, path: Path) -> None:
    """Write `dataset` to `path` as compressed NetCDF-4 with checksums, whole or not at all."""
    from xarray.backends import NetCDF4DataStore

    with replacing(path) as temporary, LOCK:
        # Not `to_netcdf`, which takes its lock around every step: a Ctrl-C during one is raised where it is about to
        # release the lock, and closing the file then waits for that lock forever.
        store = NetCDF4DataStore.open(temporary, mode="w", format="NETCDF4", lock=False)
        try:
            dataset.dump_to_store(store, encoding=_encoding(dataset))
        finally:
            store.close()


def _encoding(dataset: xr.Dataset) -> dict[str, dict[str, Any]]:
    encoding: dict[str, dict[str, Any]] = {}
    for name, variable in dataset.variables.items():
        if variable.ndim and variable.dtype.kind in "fiu" and variable.size > CHECKED_CELLS:
            # zlib reads everywhere; level 1 is nearly as small as the rest on these grids and much faster.
            encoding[str(name)] = {
                "zlib": True, "complevel": 1, "shuffle": variable.dtype.itemsize > 1, "fletcher32": True,
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
        with LOCK:
            dataset = xr.open_dataset(file, engine="netcdf4", lock=LOCK)
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


def is_whole(path: Path) -> bool:
    """Return whether `path` is a result of which every value can be read; checksums are compared on the way."""
    try:
        with open_dataset(path) as dataset:
            dataset.load()
    except (InputError, OSError, ValueError, RuntimeError):
        return False
    return True
