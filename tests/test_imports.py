"""Imports run one way, heavy ones wait until they are needed, public names stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kvsweep

ROOT = Path(__file__).parents[1]
HEAVY = ("numba", "numpy", "xarray", "matplotlib", "netCDF4", "pandas")


def test_imports_run_one_way() -> None:
    """The contract of `pyproject.toml`: cli, grid, costs, then results, catalog and policies, then units, errors."""
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


def test_no_file_is_too_long() -> None:
    for path in [*ROOT.glob("kvsweep/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/*.py")]:
        assert len(path.read_text().splitlines()) <= 600, path
