"""Programs are the functions they are compiled from; what they take of Numba beyond its documents may be missing.

A failure of a test named after a piece of Numba is news of a new Numba, not of kvsweep: see `kvsweep.jit.internals`,
then widen the range in setup.cfg.
"""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba import njit
from numba.core.caching import FunctionCache
from numba.core.codegen import CPUCodeLibrary
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from kvsweep.jit import internals, programs
from kvsweep.jit.programs import Program
from kvsweep.jit.reference import Reference

SETUP = Path(__file__).parents[2] / "setup.cfg"
OPTIONS = {"error_model": "numpy", "_nrt": False}


def gone(what: str) -> str:
    return f"numba {numba.__version__} has no {what} any more: programs compile for longer (kvsweep/jit/internals.py)"


class Scales(NamedTuple):
    weight: NDArray[np.float64]
    small: NDArray[np.int32]


class Pools(NamedTuple):
    free: NDArray[np.int64]
    held: NDArray[np.int64]
    scales: Scales

    @staticmethod
    def fixed() -> tuple[str, ...]:
        return ("free",)


def take(pools: Pools, w: int, pages: int) -> None:
    row = pools.free[w]
    row[0] -= pages
    pools.held[w] += pages


def give(pools: Pools, w: int, pages: int) -> None:
    take(pools, w, -pages)


def serve(pools: Pools, steps: int) -> int:
    for step in range(steps):
        take(pools, step % 2, 3)
        give(pools, step % 2, 1)
        pools.scales.weight[step % 2] += 0.1 * pools.scales.small[step % 3, 1, 0] * pools.free.size
    return int(pools.held[0])


def pools() -> Pools:
    return Pools(
        np.array([[10, 1], [20, 2]]), np.array([0, 0]),
        Scales(np.zeros(2), np.arange(12, dtype=np.int32).reshape(3, 2, 2)),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVSWEEP_CACHE_DIR", str(tmp_path))  # what is cached is not compiled


def check(program: Program) -> None:
    plain, compiled = pools(), pools()
    run = program.bind(compiled, 0)
    assert [run(5), run(2)] == [serve(plain, 5), serve(plain, 2)]
    for one, other in zip((*plain[:2], *plain.scales), (*compiled[:2], *compiled.scales), strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_program_is_its_source_to_the_last_bit() -> None:
    check(Program(serve, OPTIONS))


def test_states_must_be_contiguous_and_other_shapes_are_other_types() -> None:
    with pytest.raises(ValueError, match="held is not contiguous"):
        Reference(pools()._replace(held=np.zeros(4, np.int64)[::2]))
    assert Reference(pools()).kind == Reference(pools()._replace(held=np.zeros(9, np.int64))).kind
    assert Reference(pools()).kind != Reference(pools()._replace(held=np.zeros((2, 2), np.int64))).kind
    assert Reference(pools()).kind != Reference(pools()._replace(held=np.zeros(2))).kind


def test_only_the_entry_becomes_machine_code_and_all_is_optimised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = getattr(CPUCodeLibrary, "finalize", None)
    assert whole is not None, gone("CPUCodeLibrary.finalize")
    optimised: list[str] = []

    def note(library: Any) -> None:
        optimised.append(library.name)
        whole(library)

    monkeypatch.setattr(CPUCodeLibrary, "finalize", note)
    told: list[tuple[int, int]] = []
    program = Program(serve, OPTIONS)
    program.bind(pools(), 0, progress=lambda done, total: told.append((done, total)))
    assert optimised.count("serve") == 1 and not {"take", "give", "entry"} & set(optimised), gone("library of our own")
    assert told == sorted(told) and {*told} >= {(i, 4) for i in range(4)}


def test_what_was_compiled_once_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Program(serve, OPTIONS).is_compiled()
    check(Program(serve, OPTIONS))
    assert Program(serve, OPTIONS).is_compiled()
    monkeypatch.setattr(internals, "_Pieces", None)
    monkeypatch.setattr("numba.core.compiler.Compiler.define_pipelines", None)
    check(Program(serve, OPTIONS))


def test_a_checkout_elsewhere_and_another_process_find_what_was_compiled(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import module\nfrom kvsweep.jit.programs import Program\nprint(Program(module.serve, {}).key)"
    )
    keys = set()
    for seed, folder in (("1", tmp_path / "here"), ("2", tmp_path / "there")):
        folder.mkdir()
        (folder / "module.py").write_text("def serve(state, n):\n    return n in {'a', 'b', 'c'}\n")
        process = subprocess.run(
            [sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        keys.add(process.stdout)
    assert len(keys) == 1


def test_the_series_of_numba_is_pinned_and_installed() -> None:
    parser = configparser.ConfigParser(inline_comment_prefixes=("#",))
    parser.read(SETUP)
    (stated,) = (line for line in parser["options"]["install_requires"].split() if line.startswith("numba"))
    least, below = re.fullmatch(r"numba>=(\d+\.\d+),<(\d+\.\d+)", stated).groups()  # type: ignore[union-attr]
    version = tuple(map(int, numba.__version__.split(".")[:2]))
    assert tuple(map(int, least.split("."))) <= version < tuple(map(int, below.split("."))), stated


def test_cores_can_do_without_reference_counts() -> None:
    assert internals.known_options(OPTIONS) == OPTIONS, gone("option _nrt")
    assert njit()(lambda n: np.empty(n).size)(3) == 3
    try:  # what counts no references can allocate nothing
        njit(**OPTIONS)(lambda n: np.empty(n).size)(3)
    except NumbaError:
        return
    pytest.fail(gone("option _nrt with an effect"))


def test_the_cache_of_numba_has_what_ours_overrides() -> None:
    for method in ("load_overload", "save_overload", "flush"):
        assert callable(getattr(FunctionCache, method, None)), gone(f"FunctionCache.{method}")


@pytest.mark.parametrize("piece", ["option", "all", "lowering", "items", "typing", "library"])
def test_without_a_piece_of_numba_programs_are_the_same(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if piece == "option":
        monkeypatch.setattr(internals, "CPUTargetOptions", object)
    elif piece == "all":
        monkeypatch.setattr(programs, "internals", None)
    else:
        name = {"lowering": "_LowerResult", "items": "partial", "typing": "_Operator", "library": "_Library"}[piece]
        monkeypatch.setattr(internals, name, None)
    program = Program(serve, OPTIONS)
    assert program.options == (OPTIONS if piece not in ("option", "all") else {"error_model": "numpy"})
    check(program)
    assert Program(serve, OPTIONS).is_compiled()


def test_a_fixed_length_is_part_of_the_type() -> None:
    other = pools()._replace(free=np.zeros((2, 3), np.int64))
    assert Reference(pools()).kind != Reference(other).kind
    assert Reference(pools()).kind == Reference(pools()._replace(free=np.zeros((9, 2), np.int64))).kind
