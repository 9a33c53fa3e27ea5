"""`run`: a trace on a cluster, as a Dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvsweep.cluster.inputs.config import ClusterConfig, parse_config
from kvsweep.cluster.inputs.indifference import indifferent
from kvsweep.cluster.inputs.notes import notes_of
from kvsweep.cluster.inputs.profiles import (
    AnyProfile,
    parse_any_profile,
    read_any_profile,
    service_profile,
    step_profile,
)
from kvsweep.cluster.inputs.service_profile import Profile
from kvsweep.cluster.inputs.step_profile import StepProfile
from kvsweep.cluster.outcome.dataset import Finished, dataset
from kvsweep.cluster.policies.plugins import Plugins, select_plugin
from kvsweep.cluster.setup.closed_loop import turns
from kvsweep.cluster.setup.context import admitted, with_context
from kvsweep.cluster.setup.initial_state import LONGEST, initial_state
from kvsweep.cluster.setup.vllm import initial_fleet, resolved
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.simulation.cores import memory_bytes, run_core, shared
from kvsweep.cluster.vllm.state import Fleet
from kvsweep.errors import PolicyError
from kvsweep.jit.programs import Progress
from kvsweep.policies.registry import Policy, load_policies
from kvsweep.results.dataset import timestamp
from kvsweep.trace.model import Note, Trace
from kvsweep.trace.read import read_trace
from kvsweep.yamlfile import read_yaml_file

if TYPE_CHECKING:
    import xarray as xr


def run(
    trace: Trace | str | os.PathLike[str],
    config: ClusterConfig | Mapping[str, Any] | str | os.PathLike[str],
    profile: AnyProfile | Mapping[str, Any] | str | os.PathLike[str],
    *,
    policy_files: Sequence[str | Path] = (),
    check: bool = False,
    compile: bool | None = None,
) -> xr.Dataset:
    """Return what becomes of the requests of `trace` on a cluster.

    The rules are in ``kvsweep/cluster/engine/README.md``, those of ``fidelity: paper`` in ``paper/README.md``, of
    vLLM workers in ``vllm/README.md``.

    Parameters
    ----------
    trace, config, profile
        Objects, mappings as their files hold, or the files; a profile that comes with kvsweep also by its name.
    policy_files
        Files with policies: restore-or-recompute ones for ``retrieval``, gateways, evictions, retentions (`plugins`).
    check
        Assert the rules of conservation after every instant; slow.
    compile
        Whether to compile the simulator where that was not done yet. By default it is for runs that its plain source,
        which gives the same to the last bit, would take longer for.

    Raises
    ------
    InputError
        For a file, figure or combination that cannot be run.
    ResultError
        For a run that stopped making progress, or broke a rule: a fault of kvsweep.
    """
    return dataset(finish(trace, config, profile, policy_files=policy_files, check=check, compile=compile))


def finish(
    trace: Trace | str | os.PathLike[str],
    config: ClusterConfig | Mapping[str, Any] | str | os.PathLike[str],
    profile: AnyProfile | Mapping[str, Any] | str | os.PathLike[str],
    *,
    policy_files: Sequence[str | Path] = (),
    check: bool = False,
    compile: bool | None = None,
    progress: Progress | None = None,
) -> Finished:
    """Return the finished run of which `run` returns the Dataset; `progress` is told of compilation."""
    timestamp()  # SOURCE_DATE_EPOCH is input, too: refused before any work
    trace = trace if isinstance(trace, Trace) else read_trace(trace)
    config, unused = _config(config)
    unused = (*unused, *indifferent(config, trace.has_sessions))
    profile = _profile(profile)
    policy = _policy(config.retrieval.policy, policy_files)
    plugins = Plugins(
        select_plugin("gateway", config.gateway.policy, policy_files),
        select_plugin("eviction", config.eviction.policy, policy_files),
        select_plugin("retention", config.retention.policy, policy_files),
    )
    config = with_context(config, profile)
    found = admitted(trace, config)
    config, begin, assumed = _beginning(found.trace, config, profile, policy)
    ended = run_core(begin, policy, plugins, check=check, compile=compile, progress=progress)
    waiting = turns(found.trace, config, LONGEST)
    assumed = (*found.notes, *_page_notes(trace, config.page_size), *waiting.notes(), *assumed)
    asked = replace(found.asked, notes=(*trace.notes, *assumed))
    state = found.whole(shared(ended.run), bool(len(waiting.request)))
    return Finished(
        state, asked, config, profile, policy, plugins, ended.seconds, memory_bytes(ended.run), unused,
        ended.is_compiled, found.n_beyond,
    )  # fmt: skip


def _beginning(
    trace: Trace, config: ClusterConfig, profile: AnyProfile, policy: Policy
) -> tuple[ClusterConfig, State | Fleet, tuple[Note, ...]]:
    """Return the resolved cluster file, what is before the first arrival, and what was assumed for it."""
    if not config.vllm:
        return config, initial_state(trace, config, service_profile(config, profile), policy), ()
    steps = step_profile(config, profile)
    config, assumed = resolved(config, steps)
    return config, initial_fleet(trace, config, steps), assumed


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


def _profile(given: AnyProfile | Mapping[str, Any] | str | os.PathLike[str]) -> AnyProfile:
    if isinstance(given, Profile | StepProfile):
        return given
    return parse_any_profile(given, "profile") if isinstance(given, Mapping) else read_any_profile(Path(given))
