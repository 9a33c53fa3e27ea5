"""The pieces of Numba that it does not document and kvsweep goes by: that they are there, and what becomes of it else.

A failure here is news of a new Numba, not of kvsweep: see `known_options` and `_one_optimization` in
kvsweep/grid/jit.py, then widen the range in setup.cfg.
"""

from __future__ import annotations

import configparser
import os
import re
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba import njit
from numba.core.caching import FunctionCache
from numba.core.codegen import CPUCodeLibrary
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from kvsweep.grid import jit

SETUP = Path(__file__).parents[2] / "setup.cfg"
OPTIONS = {"error_model": "numpy", "_nrt": False}


def gone(what: str) -> str:
    return f"numba {numba.__version__} has no {what} any more: cores fall back and are slower (kvsweep/grid/jit.py)"


class Pools(NamedTuple):
    free: NDArray[np.int64]
    held: NDArray[np.int64]


def take(pools: Pools, w: int, pages: int) -> None:
    pools.free[w] -= pages
    pools.held[w] += pages


def give(pools: Pools, w: int, pages: int) -> None:
    take(pools, w, -pages)


def serve(pools: Pools, steps: int) -> int:
    for step in range(steps):
        take(pools, step % 2, 3)
        give(pools, step % 2, 1)
    return int(pools.held[0])


def test_the_series_of_numba_is_pinned_and_installed() -> None:
    parser = configparser.ConfigParser(inline_comment_prefixes=("#",))
    parser.read(SETUP)
    (stated,) = (line for line in parser["options"]["install_requires"].split() if line.startswith("numba"))
    least, below = re.fullmatch(r"numba>=(\d+\.\d+),<(\d+\.\d+)", stated).groups()  # type: ignore[union-attr]
    version = tuple(map(int, numba.__version__.split(".")[:2]))
    assert tuple(map(int, least.split("."))) <= version < tuple(map(int, below.split("."))), stated


def test_every_package_is_listed_for_installation() -> None:
    parser = configparser.ConfigParser(inline_comment_prefixes=("#",))
    parser.read(SETUP)
    root = SETUP.parent
    there = {".".join(path.parent.relative_to(root).parts) for path in (root / "kvsweep").rglob("__init__.py")}
    assert set(parser["options"]["packages"].split()) == {*there, "kvsweep.hardware"}


def test_cores_can_do_without_reference_counts() -> None:
    assert jit.known_options(OPTIONS) == OPTIONS, gone("option _nrt")
    assert njit()(lambda n: np.empty(n).size)(3) == 3
    try:  # what counts no references can allocate nothing
        njit(**OPTIONS)(lambda n: np.empty(n).size)(3)
    except NumbaError:
        return
    pytest.fail(gone("option _nrt with an effect"))


def test_a_program_is_optimised_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVSWEEP_CACHE_DIR", str(tmp_path))  # what is cached is not compiled
    whole = getattr(CPUCodeLibrary, jit._OPTIMIZE, None)
    assert whole is not None, gone(f"CPUCodeLibrary.{jit._OPTIMIZE}")
    optimised = []

    def note(library: CPUCodeLibrary) -> None:
        optimised.append(library.name)
        whole(library)

    monkeypatch.setattr(CPUCodeLibrary, jit._OPTIMIZE, note)
    pools = Pools(np.array([10, 10]), np.array([0, 0]))
    assert jit.program(serve, OPTIONS)(pools, 4) == 4
    assert optimised == ["serve"], gone(f"CPUCodeLibrary.{jit._OPTIMIZE} for every function")
    assert getattr(CPUCodeLibrary, jit._OPTIMIZE) is note


def test_the_cache_of_numba_has_what_ours_overrides() -> None:
    for method in ("load_overload", "save_overload", "flush"):
        assert callable(getattr(FunctionCache, method, None)), gone(f"FunctionCache.{method}")


@pytest.mark.parametrize("piece", ["option", "method", "both"])
def test_without_these_pieces_programs_still_run(piece: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVSWEEP_CACHE_DIR", str(tmp_path))
    if piece != "method":
        monkeypatch.setattr(jit, "CPUTargetOptions", object)
        assert jit.known_options(OPTIONS) == {"error_model": "numpy"}
    if piece != "option":
        monkeypatch.setattr(jit, "_OPTIMIZE", "_what_is_gone")
    pools = Pools(np.array([10, 10]), np.array([0, 0]))
    assert not jit.program_is_compiled(serve, OPTIONS)
    assert jit.program(serve, OPTIONS)(pools, 4) == 4 and pools.free.tolist() == [6, 6]
    assert jit.program_is_compiled(serve, OPTIONS) and os.listdir(tmp_path)
