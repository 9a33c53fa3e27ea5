"""One lock around every use of netCDF: threads neither crash nor damage each other's files, and damage is found."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import xarray as xr

import kvsweep
from kvsweep.results.netcdf import is_whole, write_netcdf

THREADS = """
import sys, threading
from pathlib import Path
import numpy as np
import xarray as xr
from kvsweep.results.netcdf import open_dataset, write_netcdf

wrong = []

def one(thread):
    for number in range(12):
        path = Path(sys.argv[1]) / f"{thread}-{number}.nc"
        parts = {f"v{i}": ("x", np.random.default_rng([thread, number, i]).normal(size=3000)) for i in range(6)}
        made = xr.Dataset(parts, attrs={"kvsweep_schema_version": 1})
        write_netcdf(made, path)
        with open_dataset(path) as read:
            if not read.equals(made):  # lazily, variable by variable
                wrong.append(path.name)

threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(f"differ: {wrong}" if wrong else 0)
"""


def test_threads_write_and_read_side_by_side(tmp_path: Path) -> None:
    found = subprocess.run([sys.executable, "-c", THREADS, tmp_path], capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stderr) == (0, "")
    assert len(list(tmp_path.iterdir())) == 48


def _sample() -> xr.Dataset:
    return xr.Dataset({"v": ("x", np.arange(5000.0))}, attrs={"kvsweep_schema_version": 1})


def test_every_changed_byte_of_the_values_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    write_netcdf(_sample(), path)
    assert is_whole(path)
    data = path.read_bytes()
    for place in range(0, len(data), len(data) // 60):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :])
        if is_whole(path):  # a byte that means nothing, such as free room
            with kvsweep.open(path) as read:
                assert read.equals(_sample()), place
    path.write_bytes(data[: len(data) // 2])
    assert not is_whole(path) and not is_whole(tmp_path / "none.nc")


def test_a_dataset_that_is_read_lazily_can_be_copied(tmp_path: Path) -> None:
    write_netcdf(_sample(), tmp_path / "a.nc")
    with kvsweep.open(tmp_path / "a.nc") as read:
        assert copy.deepcopy(read).equals(_sample())
        assert pickle.loads(pickle.dumps(read)).equals(_sample())
