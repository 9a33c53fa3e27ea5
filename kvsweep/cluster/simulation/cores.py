"""Driving a core to the end of a run: compiled, as plain Python, or with the checker after every instant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np

from kvsweep.cluster.engine import audit as engine_audit
from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine import loop as engine
from kvsweep.cluster.paper import audit as paper_audit
from kvsweep.cluster.paper import loop as paper
from kvsweep.cluster.policies.plugins import FUNCTIONS, GatewayContext, IdleContext, Plugin, Plugins
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.policy_functions import Asked
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.vllm import audit as vllm_audit
from kvsweep.cluster.vllm import loop as vllm
from kvsweep.cluster.vllm.state import Fleet
from kvsweep.errors import InputError, PolicyError, ResultError
from kvsweep.grid.jit import decision, nan_where_failing, program, program_is_compiled, score
from kvsweep.policies.context import Context
from kvsweep.policies.registry import Policy

Run = TypeVar("Run", State, Fleet)

# Without reference counts the core is seven times as fast; it keeps no array beyond a call, and returns none.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
INSTANTS = 200_000
"""Instants between two looks at Ctrl-C: a fifth of a second or less."""
MAX_WINDOWS = 1 << 24
BUILT_IN = Plugins()


@dataclass(frozen=True, slots=True)
class Core:
    """A set of rules: the event loop, its checker with what each rule says, and the stages of a request.

    A stage is the column of the time it ends at, and what a request waits for until then.
    """

    advance: Callable[..., int]
    broken_rule: Callable[..., int]
    rules: tuple[str, ...]
    stages: tuple[tuple[int, str], ...]


_ADMITTED = (col.ADMITTED, "its admission")
_RESERVED = (col.RESERVED, "room at its decode worker")
_PREFILLED = (col.PREFILLED, "its prefill")
_FINISHED = (col.FINISHED, "its last token")
_HANDED_OVER = (
    _PREFILLED, (col.HANDED, "its handoff"), (col.JOINED, "a place in the batch"), _FINISHED
)  # fmt: skip
CORES = {
    "paper": Core(
        paper.advance, paper_audit.broken_rule, paper_audit.RULES,
        (_ADMITTED, (col.READY, "its retrieval"), _PREFILLED, _RESERVED, *_HANDED_OVER[1:]),
    ),
    "engine": Core(
        engine.advance, engine_audit.broken_rule, engine_audit.RULES, (_RESERVED, _ADMITTED, *_HANDED_OVER)
    ),
    "vllm": Core(
        vllm.advance, vllm_audit.broken_rule, vllm_audit.RULES, (_ADMITTED, _PREFILLED, _FINISHED)
    ),
}  # fmt: skip
"""Cores by name."""


def shared(run: State | Fleet) -> State:
    """Return the part of a run that all cores have."""
    return run.state if isinstance(run, Fleet) else run


def memory_bytes(run: State | Fleet) -> int:
    """Return the size of all arrays of a run [byte]."""
    parts = (*run, *run.state, *run.times) if isinstance(run, Fleet) else run
    return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))


def compiled_run(run: Run, policy: Policy, plugins: Plugins = BUILT_IN) -> Run:
    """Run `run` to its end with the compiled core; return it, whose windows may be longer."""
    return _run(run, (policy, plugins), _compiled(_name(run)), asked(policy, plugins), INSTANTS)


def plain_run(run: Run, policy: Policy, plugins: Plugins = BUILT_IN) -> Run:
    """Run `run` to its end with the very source of the core, uncompiled."""
    cost, key, ttl = (nan_where_failing(plugin.ask) if plugin else _nothing for plugin in plugins)
    ask = Asked(nan_where_failing(lambda *fields: policy.choose(Context(*fields))[0]), cost, key, ttl)
    return _run(run, (policy, plugins), CORES[_name(run)].advance, ask, INSTANTS)


def checked_run(run: Run, policy: Policy, plugins: Plugins = BUILT_IN) -> Run:
    """Run `run` with the compiled core, and the rules of conservation asserted after every instant."""
    name = _name(run)
    return _run(run, (policy, plugins), _compiled(name), asked(policy, plugins), 1, _audit(name))


def run_core(run: State | Fleet, policy: Policy, plugins: Plugins, check: bool) -> State | Fleet:
    """Run either kind of run to its end with the compiled core, checked if asked for."""
    drive = checked_run if check else compiled_run
    return drive(run, policy, plugins) if isinstance(run, Fleet) else drive(run, policy, plugins)


def compile_core(run: State | Fleet, policy: Policy, plugins: Plugins) -> None:
    """Compile all that `run` needs, which is no part of its time."""
    _compiled(_name(run))(run, 0, asked(policy, plugins))


def is_compiled(name: str) -> bool:
    """Return whether the core `name` lies in the cache, so that no compilation waits."""
    return program_is_compiled(CORES[name].advance, _OPTIONS)


@cache
def asked(policy: Policy, plugins: Plugins) -> Asked:
    """Return the functions of policies that the compiled core asks."""
    return Asked(
        decision(policy),
        _score(plugins.gateway, GatewayContext),
        _score(plugins.eviction, IdleContext),
        _score(plugins.retention, IdleContext),
    )


def _name(run: State | Fleet) -> str:
    if isinstance(run, Fleet):
        return "vllm"
    return "engine" if len(run.run) == eng.N_RUN else "paper"


@cache
def _compiled(name: str) -> Callable[..., int]:
    return program(CORES[name].advance, _OPTIONS)


@cache
def _audit(name: str) -> Callable[..., int]:
    return program(CORES[name].broken_rule, _OPTIONS)


@cache
def _score(plugin: Plugin | None, context: type[Any]) -> Any:
    return score(plugin.decide, context, str(plugin)) if plugin else score(_nothing, context, "no policy")


def _nothing(*_: Any) -> float:
    """Stand where a policy is built in: it is never called."""
    return 0.0


def _run(
    run: Run,
    policies: tuple[Policy, Plugins],
    core: Callable[..., int],
    ask: Asked,
    instants: int,
    audit: Callable[..., int] | None = None,
) -> Run:
    while True:
        code = core(run, instants, ask)
        broken = audit(run) if audit else 0
        if broken:
            rule = CORES[_name(run)].rules[broken]
            raise ResultError(f"{_where(shared(run))}: it does not hold that {rule} (this is a bug of kvsweep)")
        if code == col.DONE:
            return run
        if code == col.GROW:
            run = _grown(run)
        elif code == col.STUCK:
            raise _stuck(run)
        elif code == col.NONSENSE:
            raise _nonsense(shared(run), *policies)


def _stuck(run: State | Fleet) -> Exception:
    """Return the error for a run in which nothing is due, or only what lies beyond the clock's end."""
    state = shared(run)
    if state.due[2 * state.run[col.LEAVES] :].max() > col.NEVER:
        return InputError(
            f"the run lasts longer than {col.NEVER * 1e-12:.3g} s, what the clock can hold; "
            "allowed: fewer requests, or a profile of faster operations"
        )
    return ResultError(f"no progress: nothing is due and {_diagnosis(run)}")


def _nonsense(state: State, policy: Policy, plugins: Plugins) -> PolicyError:
    """Return the error for a policy that failed, or answered what is no answer."""
    faults = dict(zip((col.FAULT_GATEWAY, col.FAULT_EVICTION, col.FAULT_RETENTION), plugins, strict=True))
    plugin = faults.get(int(state.run[col.FAULT]))
    if plugin is not None:
        where = f"at {state.run[col.NOW] * 1e-12:.6f} s"
        return PolicyError(f"{plugin}: {where}: {FUNCTIONS[plugin.kind]} failed or returned NaN; allowed: a number")
    who = f"policy {policy.name} ({policy.origin}): "
    why = "decide failed as compiled code, and not as Python; allowed: a number of blocks, and a mode"
    try:  # it says itself what is wrong
        policy.choose(Context._make(state.real[col.ASKED : col.N_REAL].tolist()))
    except PolicyError as error:
        why = str(error).removeprefix(who)
    return PolicyError(f"{who}{_where(state)}: {why}")


def _grown(run: Run) -> Run:
    """Return `run` with twice the room of what was too short."""
    state = shared(run)
    if isinstance(run, Fleet):
        if int(state.due[2 * state.run[col.LEAVES] :].min()) // int(state.run[col.WINDOW]) < len(state.windows):
            return run._replace(log=_doubled(run.log))
        return run._replace(state=_more_windows(state))
    if _name(run) == "engine" and state.run[eng.UNFINISHED] == 1:
        return run._replace(node=_doubled(state.node), chunk=_doubled(state.chunk))
    return _more_windows(run)


def _more_windows(state: State) -> State:
    if len(state.windows) >= MAX_WINDOWS:
        raise InputError(f"window_seconds: the run has more than {MAX_WINDOWS} windows; allowed: a longer window")
    return state._replace(windows=_doubled(state.windows))


def _doubled(table: Any) -> Any:
    return np.concatenate((table, np.zeros_like(table)))


def _where(state: State) -> str:
    return f"request {state.run[col.SUSPECT]} at {state.run[col.NOW] * 1e-12:.6f} s"


def _diagnosis(run: State | Fleet) -> str:
    """Return how far the first request that did not finish has come, and what it waits for."""
    state, name = shared(run), _name(run)
    r = int(state.run[col.SUSPECT])
    request, stages = state.request[r], CORES[name].stages
    if name == "engine" and state.run[eng.COLOCATED]:
        stages = tuple(stage for stage in stages if stage[0] not in (col.RESERVED, col.HANDED))
    waits = next(what for column, what in stages if request[column] < 0)
    place = f"prefill worker {request[col.AT_PREFILL]}, decode worker {request[col.AT_DECODE]}"
    return f"{state.run[col.LEFT]} requests are not done; request {r} ({place}) waits for {waits}"
