"""What compiles when: small runs never wait, large ones go on compiled from where they stand, to the last bit."""

from __future__ import annotations

import importlib
import types

import pytest

from kvsweep.cluster.policies.plugins import Plugins
from kvsweep.cluster.setup.initial_state import initial_state
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.simulation import cores
from kvsweep.jit.programs import Program
from kvsweep.policies.registry import Policy, load_policies
from tests.cli_runner import done
from tests.cluster.samples import cluster, fuzz_profile, pages, trace


def begin(fidelity: str) -> tuple[State, Policy]:
    requests = [(0.01 * i, 40 + 8 * (i % 5), 3 + i % 7, pages(10 * (i % 4), 10)) for i in range(60)]
    pools = {"device_tokens": 200, "host_tokens": 400, "chunk_tokens": 16}
    config = cluster(pools, {"device_tokens": 300}, page_size=4, fidelity=fidelity)
    policy = load_policies()["default_policy"]
    return initial_state(trace(requests, page=4), config, fuzz_profile(), policy), policy


def with_a_constant(code: types.CodeType) -> types.CodeType:
    return code.replace(co_consts=(*code.co_consts, 7.5))


def equal(one: State, other: State) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("elapsed", "done_share", "worth"),
    [
        (0.9, 0.001, False),
        (1.0, 0.0, True),
        (1.0, 0.04, True),
        (1.0, 0.05, False),
        (10.0, 0.3, True),
        (10.0, 0.4, False),
    ],
)
def test_compiling_is_worth_what_the_rest_would_take(elapsed: float, done_share: float, worth: bool) -> None:
    assert cores.is_worth_compiling(elapsed, done_share, compile_seconds=20.0) is worth


def test_a_small_run_does_not_wait_for_the_compiler(fidelity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = cores.run_core(*begin(fidelity), Plugins(), compile=True)
    monkeypatch.setattr(cores, "is_compiled", lambda *_: False)
    monkeypatch.setattr(cores, "compile_core", None)
    plain = cores.run_core(*begin(fidelity), Plugins())
    assert (plain.is_compiled, compiled.is_compiled) == (False, True)
    assert isinstance(plain.run, State) and equal(plain.run, compiled.run)
    checked = cores.run_core(*begin(fidelity), Plugins(), check=True)
    assert not checked.is_compiled and equal(checked.run, compiled.run)


def test_a_long_run_goes_on_compiled_from_where_it_stands(fidelity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = cores.run_core(*begin(fidelity), Plugins(), compile=False)
    left = []
    monkeypatch.setattr(cores, "is_compiled", lambda *_: False)
    monkeypatch.setattr(cores, "PLAIN_INSTANTS", 7)
    monkeypatch.setattr(cores, "is_worth_compiling", lambda _, done, __: left.append(1.0 - done) or done > 0.4)
    ended = cores.run_core(*begin(fidelity), Plugins())
    assert ended.is_compiled and 0.0 < left[-1] < 0.6
    assert isinstance(ended.run, State) and equal(ended.run, plain.run)


def test_a_change_to_one_core_leaves_the_others_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def keys() -> dict[str, str]:
        return {name: Program(core.advance, cores._OPTIONS).key for name, core in cores.CORES.items()}

    before = keys()
    for core, place in (("vllm", "vllm.schedule"), ("engine", "engine.workers.decode"), ("paper", "paper.tiers")):
        with monkeypatch.context() as patch:
            module = importlib.import_module(f"kvsweep.cluster.{place}")
            for function in vars(module).values():
                if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
                    patch.setattr(function, "__code__", with_a_constant(function.__code__))
            after = keys()
        assert {name for name in before if after[name] != before[name]} == {core}


def test_the_command_compiles_beforehand() -> None:
    told = done("warm", "all").stderr
    ready = [line.split(": ready")[0] for line in told.splitlines() if "ready after" in line]
    assert ready == ["grid", *(f"cluster {name}" for name in cores.CORES)]
    assert done("warm", "--quiet").stderr == ""
