"""`run`: a trace on a cluster, as a Dataset."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvsweep.catalog.yamlfile import read_yaml_file
from kvsweep.cluster import columns as col
from kvsweep.cluster.asked import Asked
from kvsweep.cluster.config import ClusterConfig, parse_config
from kvsweep.cluster.engine import audit as engine_audit
from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine import loop as engine
from kvsweep.cluster.notes import notes_of
from kvsweep.cluster.outcome import Finished, dataset
from kvsweep.cluster.paper import audit as paper_audit
from kvsweep.cluster.paper import loop as paper
from kvsweep.cluster.plugins import FUNCTIONS, EvictionContext, GatewayContext, Plugin, Plugins, select_plugin
from kvsweep.cluster.profile import Profile, parse_profile, read_profile
from kvsweep.cluster.setup import LONGEST, initial_state
from kvsweep.cluster.state import State
from kvsweep.cluster.workload import turns
from kvsweep.errors import InputError, PolicyError, ResultError
from kvsweep.grid.jit import decision, nan_where_failing, program, program_is_compiled, score
from kvsweep.policies.context import Context
from kvsweep.policies.registry import Policy, load_policies
from kvsweep.results.dataset import timestamp
from kvsweep.trace.model import Note, Trace
from kvsweep.trace.read import read_trace

if TYPE_CHECKING:
    import xarray as xr

# Without reference counts the core is seven times as fast; it keeps no array beyond a call, and returns none.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
INSTANTS = 200_000
"""Instants between two looks at Ctrl-C: a fifth of a second or less."""
MAX_WINDOWS = 1 << 24
BUILT_IN = Plugins()
_PAPER_STAGES = (
    (col.ADMITTED, "its admission"),
    (col.READY, "its retrieval"),
    (col.PREFILLED, "its prefill"),
    (col.RESERVED, "room at its decode worker"),
    (col.HANDED, "its handoff"),
    (col.JOINED, "a place in the batch"),
    (col.FINISHED, "its last token"),
)
_ENGINE_STAGES = (
    (col.RESERVED, "room at its decode worker"),
    (col.ADMITTED, "its admission"),
    (col.PREFILLED, "its prefill"),
    (col.HANDED, "its handoff"),
    (col.JOINED, "a place in the batch"),
    (col.FINISHED, "its last token"),
)
"""Column of the time of each stage of a request, and what waits for it."""


def run(
    trace: Trace | str | os.PathLike[str],
    config: ClusterConfig | Mapping[str, Any] | str | os.PathLike[str],
    profile: Profile | Mapping[str, Any] | str | os.PathLike[str],
    *,
    policy_files: Sequence[str | Path] = (),
    check: bool = False,
) -> xr.Dataset:
    """Return what becomes of the requests of `trace` on a cluster.

    The rules are in ``kvsweep/cluster/engine/README.md``, those of ``fidelity: paper`` in ``paper/README.md``.

    Parameters
    ----------
    trace, config, profile
        Objects, mappings as their files hold, or the files.
    policy_files
        Files with policies: restore-or-recompute ones for ``retrieval``, gateways and evictions (`plugins`).
    check
        Assert the rules of conservation after every instant; slow.

    Raises
    ------
    InputError
        For a file, figure or combination that cannot be run.
    ResultError
        For a run that stopped making progress, or broke a rule: a fault of kvsweep.
    """
    return dataset(finish(trace, config, profile, policy_files=policy_files, check=check))


def finish(
    trace: Trace | str | os.PathLike[str],
    config: ClusterConfig | Mapping[str, Any] | str | os.PathLike[str],
    profile: Profile | Mapping[str, Any] | str | os.PathLike[str],
    *,
    policy_files: Sequence[str | Path] = (),
    check: bool = False,
) -> Finished:
    """Return the finished run of which `run` returns the Dataset."""
    timestamp()  # SOURCE_DATE_EPOCH is input, too: refused before any work
    trace = trace if isinstance(trace, Trace) else read_trace(trace)
    config, unused = _config(config)
    profile = _profile(profile)
    policy = _policy(config.retrieval.policy, policy_files)
    plugins = Plugins(
        select_plugin("gateway", config.gateway.policy, policy_files),
        select_plugin("eviction", config.eviction.policy, policy_files),
    )
    state = initial_state(trace, config, profile, policy)
    _core(_is_engine(state))(state, 0, _compiled(policy, plugins))  # compiles, which is no part of the run's time
    began = time.process_time()
    state = (checked_run if check else compiled_run)(state, policy, plugins)
    seconds = time.process_time() - began
    assumed = (*_page_notes(trace, config.page_size), *turns(trace, config, LONGEST).notes())
    trace = replace(trace, notes=(*trace.notes, *assumed))
    return Finished(state, trace, config, profile, policy, plugins, seconds, unused)


def compiled_run(state: State, policy: Policy, plugins: Plugins = BUILT_IN) -> State:
    """Run `state` to its end with the compiled core; return the state, whose windows may be longer."""
    return _run(state, (policy, plugins), _core(_is_engine(state)), _compiled(policy, plugins), INSTANTS)


def plain_run(state: State, policy: Policy, plugins: Plugins = BUILT_IN) -> State:
    """Run `state` to its end with the very source of the core, uncompiled."""
    cost, key = (nan_where_failing(plugin.ask) if plugin else _nothing for plugin in plugins)
    ask = Asked(nan_where_failing(lambda *fields: policy.choose(Context(*fields))[0]), cost, key)
    return _run(state, (policy, plugins), _source(_is_engine(state)), ask, INSTANTS)


def is_compiled(fidelity: str) -> bool:
    """Return whether the core of `fidelity` lies in the cache, so that no compilation waits."""
    return program_is_compiled(_source(fidelity == "engine"), _OPTIONS)


def checked_run(state: State, policy: Policy, plugins: Plugins = BUILT_IN) -> State:
    """Run `state` with the compiled core, and the rules of conservation asserted after every instant."""
    return _run(
        state, (policy, plugins), _core(_is_engine(state)), _compiled(policy, plugins), 1, _audit(_is_engine(state))
    )


def _is_engine(state: State) -> bool:
    return len(state.run) == eng.N_RUN


def _source(is_engine: bool) -> Callable[..., int]:
    return engine.advance if is_engine else paper.advance


@cache
def _core(is_engine: bool) -> Callable[..., int]:
    return program(_source(is_engine), _OPTIONS)


@cache
def _audit(is_engine: bool) -> Callable[..., int]:
    return program(engine_audit.broken_rule if is_engine else paper_audit.broken_rule, _OPTIONS)


@cache
def _compiled(policy: Policy, plugins: Plugins) -> Asked:
    return Asked(decision(policy), _score(plugins.gateway, GatewayContext), _score(plugins.eviction, EvictionContext))


@cache
def _score(plugin: Plugin | None, context: type[Any]) -> Any:
    return score(plugin.decide, context, str(plugin)) if plugin else score(_nothing, context, "no policy")


def _nothing(*_: Any) -> float:
    """Stand where a policy is built in: it is never called."""
    return 0.0


def _run(
    state: State,
    policies: tuple[Policy, Plugins],
    core: Callable[..., int],
    ask: Asked,
    instants: int,
    audit: Callable[..., int] | None = None,
) -> State:
    while True:
        code = core(state, instants, ask)
        broken = audit(state) if audit else 0
        if broken:
            rule = _rules(state)[broken]
            raise ResultError(f"{_where(state)}: it does not hold that {rule} (this is a bug of kvsweep)")
        if code == col.DONE:
            return state
        if code == col.GROW:
            state = _grown(state)
        elif code == col.STUCK:
            raise _stuck(state)
        elif code == col.NONSENSE:
            raise _nonsense(state, *policies)


def _stuck(state: State) -> Exception:
    """Return the error for a run in which nothing is due, or only what lies beyond the clock's end."""
    if state.due[2 * state.run[col.LEAVES] :].max() > col.NEVER:
        return InputError(
            f"the run lasts longer than {col.NEVER * 1e-12:.3g} s, what the clock can hold; "
            "allowed: fewer requests, or a profile of faster operations"
        )
    return ResultError(f"no progress: nothing is due and {_diagnosis(state)}")


def _nonsense(state: State, policy: Policy, plugins: Plugins) -> PolicyError:
    """Return the error for a policy that failed, or answered what is no answer."""
    plugin = {col.FAULT_GATEWAY: plugins.gateway, col.FAULT_EVICTION: plugins.eviction}.get(int(state.run[col.FAULT]))
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


def _rules(state: State) -> tuple[str, ...]:
    return engine_audit.RULES if _is_engine(state) else paper_audit.RULES


def _grown(state: State) -> State:
    if _is_engine(state) and state.run[eng.UNFINISHED] == 1:
        return state._replace(
            node=np.concatenate((state.node, np.zeros_like(state.node))),
            chunk=np.concatenate((state.chunk, np.zeros_like(state.chunk))),
        )
    if len(state.windows) >= MAX_WINDOWS:
        raise InputError(f"window_seconds: the run has more than {MAX_WINDOWS} windows; allowed: a longer window")
    return state._replace(windows=np.concatenate((state.windows, np.zeros_like(state.windows))))


def _where(state: State) -> str:
    return f"request {state.run[col.SUSPECT]} at {state.run[col.NOW] * 1e-12:.6f} s"


def _diagnosis(state: State) -> str:
    """Return how far the first request that did not finish has come, and what it waits for."""
    r = int(state.run[col.SUSPECT])
    request = state.request[r]
    is_engine = _is_engine(state)
    stages: tuple[tuple[int, str], ...] = _ENGINE_STAGES if is_engine else _PAPER_STAGES
    if is_engine and state.run[eng.COLOCATED]:
        stages = tuple(stage for stage in stages if stage[0] not in (col.RESERVED, col.HANDED))
    waits = next(what for column, what in stages if request[column] < 0)
    place = f"prefill worker {request[col.AT_PREFILL]}, decode worker {request[col.AT_DECODE]}"
    return f"{state.run[col.LEFT]} requests are not done; request {r} ({place}) waits for {waits}"


def _page_notes(trace: Trace, page_size: int) -> tuple[Note, ...]:
    """Return what bringing the trace's blocks to the cluster's pages assumed."""
    if trace.block_size in (0, page_size):
        return ()
    if trace.block_size > page_size:
        shared = f"pages of {page_size} tokens are shared as whole blocks of {trace.block_size}"
    else:
        shared = (
            f"pages of {page_size} tokens are put together of blocks of {trace.block_size}, incomplete ones left out"
        )
    return (Note("assumed", shared, len(trace)),)


def _policy(name: str, files: Sequence[str | Path]) -> Policy:
    policies = load_policies(files)
    if name not in policies and policies.problems:
        raise PolicyError(f"retrieval: policy: no {name!r}: {'; '.join(policies.problems)}")
    return policies.select([name], "retrieval: policy")[name]


def _config(
    given: ClusterConfig | Mapping[str, Any] | str | os.PathLike[str],
) -> tuple[ClusterConfig, tuple[str, ...]]:
    """Return the configuration, and what it states without effect."""
    if isinstance(given, ClusterConfig):
        return given, ()
    stated = given if isinstance(given, Mapping) else read_yaml_file(Path(given))
    config = parse_config(stated, "config" if isinstance(given, Mapping) else str(Path(given)))
    return config, tuple(notes_of(config, stated))


def _profile(given: Profile | Mapping[str, Any] | str | os.PathLike[str]) -> Profile:
    if isinstance(given, Profile):
        return given
    return parse_profile(given, "profile") if isinstance(given, Mapping) else read_profile(Path(given))
