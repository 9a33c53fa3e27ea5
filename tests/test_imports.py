"""Imports run one way, heavy ones wait until they are needed, public names stay."""

from __future__ import annotations

import configparser
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import kvsweep

ROOT = Path(__file__).parents[1]
ROOMS = ("kvsweep", "hardware", "tests", "benchmarks", "figures")
HEAVY = ("numba", "numpy", "xarray", "matplotlib", "netCDF4", "pandas")


def test_imports_run_one_way() -> None:
    """The contracts of `pyproject.toml`: rooms in their order, and nowhere a circle."""
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_policies_need_no_numba() -> None:
    code = "import kvsweep.policies, sys; print([name for name in sys.argv[1:] if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_is_light() -> None:
    code = "import kvsweep, sys; dir(kvsweep); print([name for name in sys.argv[1:] if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names() -> None:
    assert sorted(kvsweep.__all__) == ["catalog", "cluster", "open", "policies", "simulate", "sweep"]
    for name in kvsweep.__all__:
        assert getattr(kvsweep, name)
    with pytest.raises(AttributeError, match="no attribute 'swep'"):
        _ = kvsweep.swep


def sources(*suffixes: str) -> list[Path]:
    """Return the files of the repository with these suffixes; what is installed beside them left out."""
    found = (path for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in suffixes)
    return [path for path in found if "node_modules" not in path.parts]


def test_every_package_is_listed_for_installation() -> None:
    parser = configparser.ConfigParser(inline_comment_prefixes=("#",))
    parser.read(ROOT / "setup.cfg")
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "kvsweep").rglob("__init__.py")}
    assert set(parser["options"]["packages"].split()) == {*there, "kvsweep.hardware"}


def test_no_folder_holds_more_than_a_reader_takes_in() -> None:
    folders = Counter(path.parent for path in sources(".py", ".js", ".mjs", ".css", ".html"))
    assert len(folders) > 40
    assert {str(folder): count for folder, count in folders.items() if count > 14} == {}


def test_no_file_is_too_long() -> None:
    for path in sources(".py"):
        assert len(path.read_text().splitlines()) <= 600, path
