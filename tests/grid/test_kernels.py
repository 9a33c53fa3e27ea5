"""Compiled kernels against the scalar path and the slow twin; edits of policies always seen."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import kvsweep
from kvsweep.cache import cache_directory
from kvsweep.catalog.load import load
from kvsweep.costs.deployment import deploy
from kvsweep.costs.inputs import HARDWARE_FIELDS, MODEL_FIELDS
from kvsweep.costs.placement import normalized
from kvsweep.costs.request import request_context
from kvsweep.grid.evaluate import slabs
from kvsweep.jit import kernels, modules
from kvsweep.jit import policies as jit
from kvsweep.policies.context import LINEAR
from kvsweep.policies.outcome import outcome
from kvsweep.policies.registry import load_policies
from tests import naive
from tests.policies.test_registry import SOURCE, written

POLICIES = load_policies()


def random_rows(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return kernel rows of random deployments and requests, and a rate and a target for each."""
    generator = np.random.default_rng(7)
    rows = np.empty((kernels.N_ROW_FIELDS, count))
    held = generator.uniform(0, 1e5, (3, count)) * generator.integers(0, 2, (3, count))
    rows[kernels.VRAM_HIT : kernels.DISK_HIT + 1] = held
    rows[kernels.HIT] = held[0] + held[1] + held[2]
    rows[kernels.MISS] = np.rint(generator.uniform(0, 1e5, count)) * generator.integers(0, 2, count)
    rows[kernels.TOTAL] = rows[kernels.HIT] + rows[kernels.MISS]
    speeds = 10 ** generator.uniform(0, 6, (4, count))
    rows[[kernels.VRAM, kernels.DRAM, kernels.DISK, kernels.RECOMPUTE]] = speeds
    seconds = held[0] / speeds[0] + held[1] / speeds[1] + held[2] / speeds[2]
    blend = np.divide(rows[kernels.HIT], seconds, where=seconds > 0, out=speeds[2].copy())
    rows[kernels.STORAGE] = blend
    rows[[kernels.TOKENS, kernels.TOKEN_SECONDS, kernels.TOKEN_PAIR_SECONDS]] = [[16.0], [1e-4], [0.0]]
    rows[[kernels.OVERLAP, kernels.LAYERS, kernels.SETUP_SECONDS]] = [[LINEAR], [1.0], [0.0]]
    return rows, 10 ** generator.uniform(-4, 2, count), 10 ** generator.uniform(-2, 3, count)


def positional(rows: np.ndarray) -> np.ndarray:
    """Return `rows` with a cost, an overlap and a setup time drawn for each, the linear model among them."""
    generator = np.random.default_rng(8)
    count = rows.shape[1]
    rows[kernels.TOKEN_SECONDS] = 1.0 / (16.0 * rows[kernels.RECOMPUTE])
    rows[kernels.TOKEN_PAIR_SECONDS] = rows[kernels.TOKEN_SECONDS] * 10 ** generator.uniform(-8, -3, count)
    rows[kernels.OVERLAP] = generator.integers(0, 4, count)
    rows[kernels.LAYERS] = generator.integers(1, 100, count)
    rows[kernels.SETUP_SECONDS] = generator.uniform(0, 1, count)
    return rows


@pytest.mark.parametrize("model", ["linear", "positional"])
@pytest.mark.parametrize("name", POLICIES)
def test_scalar_path_and_kernel_agree_to_the_last_bit(name: str, model: str) -> None:
    """On many random points, evaluated in one call so that the vectorised loop and its remainder both run."""
    policy, n = POLICIES[name], 10 if model == "linear" and POLICIES[name].models == "any" else 3
    rows, rates, targets = random_rows(1000)
    if model == "positional":
        positional(rows)
    rates, targets = rates[:n], targets[:n]
    out = tuple(np.empty((1000, n, n), dtype) for dtype in ("f8", "f8", "i1", "i1"))
    assert jit.policy_kernel(policy, model == "positional")(rows, rates, targets, out) == 0
    for row, i, j in itertools.product(range(1000), range(n), range(n)):
        ctx = jit.row_context(policy, rows[:, row].tolist(), float(rates[i]), float(targets[j]))
        expected = outcome(policy, ctx)
        assert out[0][row, i, j] == expected.reassigned_hit_blocks
        assert out[1][row, i, j] == expected.total_time
        assert bool(out[2][row, i, j]) is expected.meets_slo
        assert policy.modes[out[3][row, i, j]] == expected.decision_mode
    if policy.models == "any" or model == "positional":  # every branch was taken
        assert {policy.modes[mode] for mode in np.unique(out[3])} == set(policy.modes)
    assert len(np.unique(out[2])) == 2


@pytest.mark.parametrize("placement", ["disk", "auto", "manual:1,2,3", "manual:0,0,0"])
def test_a_sweep_equals_the_slow_twin(placement: str) -> None:
    totals, hits, rates, targets = [0, 1, 50_000, 150_000], [0.0, 0.07, 0.5, 1.0], [0.01, 0.3], [1, 10, 60]
    stacks = ["h200", "a5000", "a100_ddr4_sata"]
    ds = kvsweep.sweep(
        stack=stacks, placement=placement, dtype="f8",
        total_blocks=totals, hit_ratio=hits, request_rate=rates, p95_seconds=targets,
    )  # fmt: skip
    modes = ds.decision_mode.attrs["flag_meanings"].split()
    for stack, total, hit, rate, target in itertools.product(stacks, totals, hits, rates, targets):
        missing = float(round(total * (100 - round(hit * 100)) / 100))
        here = naive.point(vars(deploy(load(), {"stack": stack})), placement, total, missing, rate, target)
        cell = ds.sel(stack=stack, total_blocks=total, hit_ratio=hit, request_rate=rate, p95_seconds=target)
        for index, name in enumerate(ds.policy.values.tolist()):
            k, mode = naive.decide(name, here)
            expected = naive.judge(here, k, tail=name == "slowest_tier_first")
            assert np.isclose(cell.total_time[index], expected["total_time"], rtol=1e-9, atol=0)
            assert np.isclose(cell.reassigned_hit_blocks[index], k, rtol=1e-9, atol=1e-6)
            assert modes[int(cell.decision_mode[index])] == mode
            assert bool(cell.meets_slo[index]) == (expected["worst"] == 0)


def test_the_same_source_runs_uncompiled() -> None:
    plain = ModuleType("plain_kernels")
    policy = POLICIES["performance_aware"]
    vars(plain).update(decide=jit.indexed(policy, "plain_kernels"), RECOMPUTES=0.0, N_MODES=2, POSITIONAL=False)
    exec(Path(kernels.__file__).read_text(), vars(plain))
    rows, rates, targets = random_rows(50)
    shape = (50, 4, 5)
    results = []
    for kernel in (plain.evaluate_rows, jit.policy_kernel(policy)):
        out = tuple(np.empty(shape, dtype) for dtype in ("f8", "f8", "i1", "i1"))
        assert kernel(rows, rates[:4], targets[:5], out) == 0
        results.append(out)
    for uncompiled, compiled in zip(*results, strict=True):
        assert np.array_equal(uncompiled, compiled)


def test_row_kernel_equals_the_request_context() -> None:
    deployments = [deploy(load(), {"stack": stack}) for stack in ("h200", "a5000")]
    shares = [(np.nan,) * 3, normalized(0, 0, 1), normalized(5, 3, 2)]
    totals, hits = np.array([10.0, 99_999.0]), np.array([0.0, 33.3, 100.0])
    rows = np.empty((kernels.N_ROW_FIELDS, 36))
    jit.row_kernel()(0, np.array([d.rates() for d in deployments]), totals, np.array(shares), hits, False, rows)
    row = 0
    for deployment in deployments:
        for total in totals:
            for share in shares:
                for hit in hits:
                    missing = float(round(total * (100.0 - hit) / 100.0))
                    ctx = request_context(deployment.rates(), share, (float(total), missing), 1.0, 1.0)
                    expected = ctx._asdict()
                    for name in ("request_rate", "p95_seconds", "recomputes"):
                        del expected[name]
                    assert rows[:, row].tolist() == list(expected.values())
                    row += 1


@pytest.mark.parametrize("shape", [(7, 3, 5), (1, 1, 1), (3, 10, 100), (2, 3, 1000), (1, 40, 7), (5, 1, 1)])
def test_slabs_cover_every_point_once(shape: tuple[int, int, int]) -> None:
    seen = np.zeros(shape, dtype=int)
    for slab in slabs(*shape, size=64):
        part = seen[slab.rows, slab.rates, slab.targets]
        assert part.size == slab.n_points <= 64 or shape[1] * shape[2] <= 64
        part += 1
    assert (seen == 1).all()


RUN = """
import json, sys, kvsweep
point = {"hit_ratio": 1, "request_rate": 0.01, "p95_seconds": 10}
ds = kvsweep.sweep(policy_files=[sys.argv[1]], policies=["half", "all_compute"], dtype="f8", **point)
print(json.dumps({"k": float(ds.reassigned_hit_blocks.sel(policy="half"))}))
"""


def in_new_process(path: Path, cache: Path) -> float:
    environment = {**os.environ, "KVSWEEP_CACHE_DIR": str(cache), "PYTHONPATH": str(path.parent)}
    done = subprocess.run([sys.executable, "-c", RUN, str(path)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout)["k"])


def test_edits_are_seen_across_processes(tmp_path: Path) -> None:
    """The policy, a helper in another file, a global constant of either: no edit meets a stale kernel."""
    helper = written(
        tmp_path, "FACTOR = 2.0\ndef part(blocks):\n    return blocks / FACTOR\n", "kvsweep_test_helper.py"
    )
    source = "from kvsweep_test_helper import part\nSHIFT = 0.0\n" + SOURCE.replace(
        "ctx.hit_blocks / 2", "part(ctx.hit_blocks) + SHIFT"
    )
    policy, cache = written(tmp_path, source), tmp_path / "cache"
    assert in_new_process(policy, cache) == 5000.0
    kernels_before = len(list(cache.rglob("*.nbc")))
    assert in_new_process(policy, cache) == 5000.0
    assert in_new_process(written(tmp_path, source, "moved.py"), cache) == 5000.0
    assert len(list(cache.rglob("*.nbc"))) == kernels_before  # neither later process compiled anything
    policy.write_text(source.replace("SHIFT = 0.0", "SHIFT = 1.0"))
    assert in_new_process(policy, cache) == 5001.0
    helper.write_text("FACTOR = 4.0\ndef part(blocks):\n    return blocks / FACTOR\n")
    assert in_new_process(policy, cache) == 2501.0
    helper.write_text("FACTOR = 4.0\ndef part(blocks):\n    return blocks / FACTOR / 2.5\n")
    assert in_new_process(policy, cache) == 1001.0


def test_edits_are_seen_within_a_process(tmp_path: Path) -> None:
    path = written(tmp_path, SOURCE)
    point = {"hit_ratio": 1, "request_rate": 0.01, "p95_seconds": 10, "policy_files": [path]}
    assert float(kvsweep.sweep(**point).reassigned_hit_blocks.sel(policy="half")) == 5000.0
    path.write_text(SOURCE.replace("/ 2", "/ 4"))
    assert float(kvsweep.sweep(**point).reassigned_hit_blocks.sel(policy="half")) == 2500.0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return eval('1.0'), 'halved'", "cannot be compiled: Untyped global name 'eval'"),
        ("return {}[ctx], 'halved'", "decide failed: KeyError"),
        ("return 0.0, 'unknown'", "returned mode 'unknown'; allowed: halved or an index"),
        ("return ctx.hit_blockz, 'halved'", "'Context' object has no attribute 'hit_blockz'"),
    ],
)
def test_a_policy_numba_refuses_is_named_and_harms_no_other(body: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, SOURCE.replace('return ctx.hit_blocks / 2, "halved"', body))
    ds = kvsweep.sweep(policy_files=[path], hit_ratio=0.5)
    assert ds.policy.values.tolist() == list(POLICIES.unasked(positional=False))
    warnings = ds.attrs["kvsweep_warnings"]
    assert "policy half" in warnings and message in warnings and "half.py" in warnings


@pytest.mark.parametrize("body", ["return 0.0 * float('inf'), 'halved'", "return 0.0, 1", "return 0.0, -1"])
def test_nonsense_of_a_kernel_is_refused_by_name(body: str, tmp_path: Path) -> None:
    path = written(tmp_path, SOURCE.replace('return ctx.hit_blocks / 2, "halved"', body))
    ds = kvsweep.sweep(policy_files=[path], hit_ratio=0.5)
    assert "half" not in ds.policy.values
    assert "policy half" in ds.attrs["kvsweep_warnings"] and "nonsense" in ds.attrs["kvsweep_warnings"]


def test_an_unwritable_cache_only_costs_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("KVSWEEP_CACHE_DIR", str(blocked))
    path = written(tmp_path, SOURCE.replace("/ 2", "/ 8"))
    ds = kvsweep.sweep(policy_files=[path], hit_ratio=1, request_rate=0.01, p95_seconds=10)
    assert float(ds.reassigned_hit_blocks.sel(policy="half")) == 1250.0


def test_field_tables_are_the_deployment() -> None:
    deployment = deploy(load(), {})
    assert set(HARDWARE_FIELDS) | set(MODEL_FIELDS) <= set(vars(deployment))


RAISING = {
    "raises": (
        "if ctx.request_rate > 0.2: raise ValueError('boom')\n    return 0.0, 0",
        "decide failed: ValueError: boom",
    ),
    "index": ("return (1.0, 2.0)[int(ctx.request_rate * 10)], 0", "decide failed: IndexError"),
    "exits": ("raise SystemExit(0)", "decide failed: SystemExit: 0"),
    "bytecode": ("first, *rest = ctx\n    return first, 0", "cannot be compiled: Use of unsupported opcode"),
    "array": ("import numpy\n    return 0.0, numpy.zeros(2)", "half"),
    "constants": ("return (0.0 if MOCK is None else 1.0), 0", "half"),
    "fraction": ("return 0.0, 0.5", "nonsense"),
}


@pytest.mark.parametrize("kind", RAISING)
def test_a_policy_that_raises_harms_no_other(kind: str, tmp_path: Path) -> None:
    body, message = RAISING[kind]
    head = "from unittest.mock import MagicMock\nMOCK = MagicMock()\n"
    path = written(tmp_path, head + SOURCE.replace('return ctx.hit_blocks / 2, "halved"', body))
    ds = kvsweep.sweep(policy_files=[path], hit_ratio=0.5)
    assert ds.policy.values.tolist() == list(POLICIES.unasked(positional=False))
    assert "half" in ds.attrs["kvsweep_warnings"] and message in ds.attrs["kvsweep_warnings"]


HELPERS = {
    "closure": "def made(f):\n    def decide(ctx): return f(ctx.hit_blocks), 'halved'\n    return decide\n"
    "def half(blocks): return blocks / 2\ndecide = made(half)\n",
    "default": "def half(blocks, mode='halved'): return blocks / 2, mode\n"
    "def decide(ctx): return half(ctx.hit_blocks)\n",
    "named": "from typing import NamedTuple\nclass Setting(NamedTuple):\n    divisor: float\nSET = Setting(2.0)\n"
    "def decide(ctx): return ctx.hit_blocks / SET.divisor, 0\n",
    "numpy": "import numpy\ndef decide(ctx): return numpy.float32(ctx.hit_blocks / 2), numpy.int64(0)\n",
}


@pytest.mark.parametrize("kind", HELPERS)
def test_a_policy_means_the_same_called_and_compiled(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, SOURCE.partition("def decide")[0] + HELPERS[kind])
    point = {"policy_files": [path], "hit_ratio": 1, "total_blocks": 1000, "request_rate": 0.01, "p95_seconds": 10}
    assert kvsweep.simulate(**point)["results"][0]["half"]["reassigned_hit_blocks"] == 500.0
    assert float(kvsweep.sweep(**point).reassigned_hit_blocks.sel(policy="half")) == 500.0


def test_edits_of_a_submodule_are_seen_across_processes(tmp_path: Path) -> None:
    (tmp_path / "kvsweep_test_package").mkdir()
    helper = written(tmp_path, "FACTOR = 2.0\n", "kvsweep_test_package/sub.py")
    source = SOURCE.replace("ctx.hit_blocks / 2", "ctx.hit_blocks / kvsweep_test_package.sub.FACTOR")
    policy, cache = written(tmp_path, "import kvsweep_test_package.sub\n" + source), tmp_path / "cache"
    assert in_new_process(policy, cache) == 5000.0
    helper.write_text("FACTOR = 16.0\n")
    assert in_new_process(policy, cache) == 625.0


def test_a_damaged_cache_only_costs_time(tmp_path: Path) -> None:
    policy, cache = written(tmp_path, SOURCE), tmp_path / "cache"
    assert in_new_process(policy, cache) == 5000.0
    for content in (b"", b"\x80"):
        for index in cache.rglob("*.nb*"):
            index.write_bytes(content)
        assert in_new_process(policy, cache) == 5000.0


def test_a_cache_that_cannot_grow_only_costs_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(modules.FunctionCache, "save_overload", refuse)
    path = written(tmp_path, SOURCE.replace("/ 2", "/ 32"))
    ds = kvsweep.sweep(policy_files=[path], hit_ratio=1, request_rate=0.01, p95_seconds=10)
    assert float(ds.reassigned_hit_blocks.sel(policy="half")) == 312.5


def test_a_filled_cache_made_read_only_only_costs_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(modules.FunctionCache, "__init__", refuse)
    path = written(tmp_path, SOURCE.replace("/ 2", "/ 64"))
    ds = kvsweep.sweep(policy_files=[path], hit_ratio=1, request_rate=0.01, p95_seconds=10)
    assert float(ds.reassigned_hit_blocks.sel(policy="half")) == 156.25


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("KVSWEEP_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", refuse)
    with pytest.raises(OSError):
        cache_directory("kernels").mkdir(parents=True)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return ctx.hit_blocks * (1.0 / ctx.miss_blocks), 'halved'", "ZeroDivisionError"),
        ("return ctx.hit_blocks / 3.0, 'halved'", None),
        ("return (10**18 * int(ctx.miss_blocks)) % 7.0, 'halved'", "plain Python gives k = 2, the kernel 6"),
    ],
)
def test_a_kernel_that_differs_from_plain_python_is_said(body: str, message: str | None, tmp_path: Path) -> None:
    path = written(tmp_path, SOURCE.replace('return ctx.hit_blocks / 2, "halved"', body))
    warnings = kvsweep.sweep(policy_files=[path], hit_ratio=[0, 0.5, 1]).attrs.get("kvsweep_warnings", "")
    assert (message in warnings and "policy half" in warnings) if message else not warnings
