"""Driving a core to the end of a run: compiled, as plain Python, or with the checker after every instant.

Both forms change the same arrays alike, to the last bit, and may pause at any instant: a run can begin with the one
and go on with the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from kvsweep.cluster.engine import audit as engine_audit
from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine import loop as engine
from kvsweep.cluster.paper import audit as paper_audit
from kvsweep.cluster.paper import loop as paper
from kvsweep.cluster.policies.plugins import FUNCTIONS, GatewayContext, IdleContext, Plugin, Plugins
from kvsweep.cluster.setup.initial_state import retrieval_code
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.vllm import audit as vllm_audit
from kvsweep.cluster.vllm import loop as vllm
from kvsweep.cluster.vllm.state import Fleet
from kvsweep.errors import InputError, PolicyError, ResultError
from kvsweep.jit.functions import NeverAsked, nan_where_failing, score
from kvsweep.jit.policies import decision
from kvsweep.jit.programs import Program, Progress
from kvsweep.policies.context import Context
from kvsweep.policies.registry import Policy

Run = TypeVar("Run", bound=State | Fleet)

# Without reference counts the core is seven times as fast; it keeps no array beyond a call, and returns none.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
INSTANTS = 200_000
"""Instants between two looks at Ctrl-C: a fifth of a second or less."""
CHECKED_ROWS = 1024
"""Blocks and requests that the checker goes over after every instant; of more, so many an instant in the mean."""
MAX_WINDOWS = 1 << 24
BUILT_IN = Plugins()
PLAIN_INSTANTS = 200
"""Instants of a plain run between two looks at whether to compile: some milliseconds to some tenths of a second."""
PATIENCE = 1.0
"""Time after which a plain run tells how long its rest takes [s]."""


@dataclass(frozen=True, slots=True)
class Core:
    """A set of rules: the event loop, its checker with what each rule says, and the stages of a request.

    A stage is the column of the time it ends at, and what a request waits for until then. `compile_seconds` is about
    what a core of 2026 takes to compile it; the measured figure is in the table of ``make bench``.
    """

    advance: Callable[..., int]
    broken_rule: Callable[..., int]
    rules: tuple[str, ...]
    stages: tuple[tuple[int, str], ...]
    compile_seconds: float


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
        (_ADMITTED, (col.READY, "its retrieval"), _PREFILLED, _RESERVED, *_HANDED_OVER[1:]), 9.0,
    ),
    "engine": Core(
        engine.advance, engine_audit.broken_rule, engine_audit.RULES, (_RESERVED, _ADMITTED, *_HANDED_OVER), 24.0,
    ),
    "vllm": Core(
        vllm.advance, vllm_audit.broken_rule, vllm_audit.RULES, (_ADMITTED, _PREFILLED, _FINISHED), 8.0,
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


class Ended(NamedTuple):
    """A run at its end."""

    run: State | Fleet
    seconds: float
    """Processor time of the run, without compilation [s]."""
    is_compiled: bool
    """Whether the compiled core made it, or the last part of it."""


def compiled_run(run: Run, policy: Policy, plugins: Plugins = BUILT_IN) -> Run:
    """Run `run` to its end with the compiled core; return it, whose windows may be longer."""
    ask = policy_functions(policy, plugins)
    return _run(run, (policy, plugins), partial(_bound, _compiled(_name(run)), ask=ask), INSTANTS)[0]


def plain_run(run: Run, policy: Policy, plugins: Plugins = BUILT_IN) -> Run:
    """Run `run` to its end with the very source of the core, uncompiled."""
    cost, key, ttl = (nan_where_failing(plugin.ask) if plugin else float for plugin in plugins)
    return _run(run, (policy, plugins), _plain(run, PolicyFunctions(_asked_plainly(policy), cost, key, ttl)), INSTANTS)[
        0
    ]


def checked_run(run: Run, policy: Policy, plugins: Plugins = BUILT_IN) -> Run:
    """Run `run` with the compiled core, and the rules of conservation asserted after every instant (`looks_every`)."""
    core = partial(_bound, _compiled(_name(run)), ask=policy_functions(policy, plugins))
    return _run(run, (policy, plugins), core, looks_every(run), _audit(_name(run)).bind)[0]


def looks_every(run: State | Fleet) -> int:
    """Return after how many instants the checker looks: each one, and fewer the more blocks and requests it goes over.

    It goes over all of them each time, and a run has instants in proportion to its requests.
    """
    rows = len(shared(run).request) + (run.block.shape[0] * run.block.shape[1] if isinstance(run, Fleet) else 0)
    return 1 + rows // CHECKED_ROWS


def run_core(
    run: Run,
    policy: Policy,
    plugins: Plugins,
    *,
    check: bool = False,
    compile: bool | None = None,
    progress: Progress | None = None,
) -> Ended:
    """Run either kind of run to its end.

    `compile` is whether to compile what is not; by default it is if the plain source would take longer. `progress` is
    told of compilation.
    """
    name, policies, seconds = _name(run), (policy, plugins), time.process_time()
    if compile is False or (compile is None and not is_compiled(name, check)):
        began, total = time.monotonic(), max(1, int(shared(run).run[col.LEFT]))

        def is_over() -> bool:
            elapsed, left = time.monotonic() - began, int(shared(run).run[col.LEFT])
            return compile is None and is_worth_compiling(elapsed, 1.0 - left / total, CORES[name].compile_seconds)

        audit = partial(partial, CORES[name].broken_rule) if check else None
        instants = looks_every(run) if check else PLAIN_INSTANTS
        run, ended = _run(run, policies, _plain(run, _as_compiled(policy, plugins)), instants, audit, is_over)
        if ended:
            return Ended(run, time.process_time() - seconds, False)
    seconds = time.process_time() - seconds
    compile_core(run, policy, plugins, check, progress)
    began_cpu = time.process_time()
    run = checked_run(run, *policies) if check else compiled_run(run, *policies)
    return Ended(run, seconds + time.process_time() - began_cpu, True)


def is_worth_compiling(elapsed: float, done: float, compile_seconds: float) -> bool:
    """Return whether the rest of a plain run would take longer than compiling.

    `elapsed` [s] made the share `done` [1] of it. The first moments tell nothing.
    """
    return elapsed >= PATIENCE and elapsed * (1.0 - done) > compile_seconds * done


def compile_core(
    run: State | Fleet, policy: Policy, plugins: Plugins, check: bool = False, progress: Progress | None = None
) -> None:
    """Compile all that `run` needs, which is no part of its time."""
    ask = policy_functions(policy, plugins)
    _compiled(_name(run)).bind(run, 0, ask, progress=progress)(0, ask)
    if check:
        _audit(_name(run)).bind(run, progress=progress)()


def is_compiled(name: str, check: bool = False) -> bool:
    """Return whether the core `name`, and its checker, lie in the cache, so that no compilation waits."""
    return _compiled(name).is_compiled() and (not check or _audit(name).is_compiled())


@cache
def policy_functions(policy: Policy, plugins: Plugins) -> PolicyFunctions:
    """Return the functions of policies that the compiled core asks."""
    return PolicyFunctions(
        decision(policy) if retrieval_code(policy) == col.RETRIEVE_ASK else NeverAsked(Context),
        _score(plugins.gateway, GatewayContext),
        _score(plugins.eviction, IdleContext),
        _score(plugins.retention, IdleContext),
    )


def _name(run: State | Fleet) -> str:
    if isinstance(run, Fleet):
        return "vllm"
    return "engine" if len(run.run) == eng.N_RUN else "paper"


@cache
def _compiled(name: str) -> Program:
    return Program(CORES[name].advance, _OPTIONS)


@cache
def _audit(name: str) -> Program:
    return Program(CORES[name].broken_rule, _OPTIONS)


def _bound(core: Program, run: State | Fleet, ask: PolicyFunctions) -> Callable[[int], int]:
    """Return the compiled `core` of `run`, a function of how many instants to go on."""
    advance = core.bind(run, 0, ask)
    return lambda instants: int(advance(instants, ask))


def _plain(run: State | Fleet, ask: PolicyFunctions) -> Callable[[State | Fleet], Callable[[int], int]]:
    """Return what `_bound` gives of a compiled core, of the source of the core of `run`."""
    advance = CORES[_name(run)].advance
    return lambda run: lambda instants: advance(run, instants, ask)


def _asked_plainly(policy: Policy) -> Callable[..., float]:
    return nan_where_failing(lambda *fields: policy.choose(Context(*fields))[0])


def _as_compiled(policy: Policy, plugins: Plugins) -> PolicyFunctions:
    """Return the functions of policies that the plain core asks, with the answers that the compiled core is given.

    Policies from files are compiled for that: where they divide by zero, say, plain Python has another answer.
    """
    cost = _called(_score(plugins.gateway, GatewayContext))
    key, ttl = (_called(_score(plugin, IdleContext)) for plugin in (plugins.eviction, plugins.retention))
    built_in = policy.origin.startswith("built in")
    return PolicyFunctions(_asked_plainly(policy) if built_in else _called(decision(policy)), cost, key, ttl)


def _called(function: Any) -> Callable[..., float]:
    """Return what calls a compiled function from Python; it is one itself where nothing is compiled."""
    called: Callable[..., float] = getattr(function, "ctypes", function)
    return called


@cache
def _score(plugin: Plugin | None, context: type[Any]) -> Any:
    return score(plugin.decide, context, str(plugin)) if plugin else NeverAsked(context)


def _run(
    run: Run,
    policies: tuple[Policy, Plugins],
    core: Callable[[Run], Callable[[int], int]],
    instants: int,
    audit: Callable[[Run], Callable[[], int]] | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> tuple[Run, bool]:
    """Return `run` at its end, or where it `is_over`, and whether it has come to its end."""
    advance, broken_rule = core(run), audit(run) if audit else None
    while True:
        code = advance(instants)
        broken = broken_rule() if broken_rule else 0
        if broken:
            rule = CORES[_name(run)].rules[broken]
            raise ResultError(f"{_where(shared(run))}: it does not hold that {rule} (this is a bug of kvsweep)")
        if code == col.DONE:
            return run, True
        if code == col.GROW:
            run = _grown(run)
            advance, broken_rule = core(run), audit(run) if audit else None
        elif code == col.STUCK:
            raise _stuck(run)
        elif code == col.NONSENSE:
            raise _nonsense(shared(run), *policies)
        elif is_over():
            return run, False


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
    return run._replace(windows=_more_windows(state).windows)


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
