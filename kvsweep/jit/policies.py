"""Kernels around the decisions of policies: copies of templates in this folder, compiled and cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from kvsweep.costs import placement, restore
from kvsweep.errors import PolicyError
from kvsweep.jit import kernels, timing
from kvsweep.jit.fingerprint import fingerprint
from kvsweep.jit.functions import (
    DISABLED,
    INLINE,
    c_function,
    for_numba,
    nan_where_failing,
    refusing,
    register_context_methods,
    telling_line,
)
from kvsweep.jit.modules import (
    KERNEL_OPTIONS,
    VERSIONS,
    compiled_function,
    lies_in_cache,
    module_name,
    written_module,
)
from kvsweep.policies.context import SIDES, Context, side_of
from kvsweep.policies.registry import Policy
from kvsweep.signals import ENDS


def is_compiled(policy: Policy, template: ModuleType = kernels, positional: bool = False) -> bool:
    """Return whether the `template` around exactly this policy lies in the cache, so that no compilation waits."""
    try:
        return lies_in_cache(_key(policy, template, positional))
    except Exception:  # the policy's constants are foreign code, too; compiling it will say what is wrong
        return False


@cache
def row_kernel() -> Callable[..., None]:
    """Return the compiled `kernels.fill_rows`."""
    key = fingerprint(kernels.fill_rows, extra=(*_versions(kernels), repr(KERNEL_OPTIONS)))[:32]
    inlined = {
        function.__name__: njit(**INLINE)(function)
        for function in (placement.miss_blocks, placement.residency, restore.blended_throughput)
    }
    module = written_module(key, _source(kernels), {}, inlined)
    return compiled_function(module, "fill_rows")


class TimingKernels(NamedTuple):
    """`timing.decide_one` and `timing.decide_many`, compiled around the decision of one policy."""

    one: Callable[[Context], tuple[float, int]]
    many: Callable[..., None]


_policy_modules: dict[str, ModuleType] = {}


def policy_kernel(policy: Policy, positional: bool = False) -> Callable[..., int]:
    """Return `kernels.evaluate_rows` compiled around the decision of `policy`."""
    return compiled_function(_policy_module(policy, kernels, positional), "evaluate_rows")


def timing_kernels(policy: Policy) -> TimingKernels:
    """Return what the overhead harness times of `policy`, compiled; raises PolicyError where that fails."""

    def build(name: str) -> Callable[[], Callable[..., Any]]:
        return lambda: compiled_function(_policy_module(policy, timing), name)

    request = Context._make([1.0] * len(Context._fields))._replace(recomputes=_side(policy))
    many = (np.ones((len(request), 1)), 1, np.empty(1), np.empty(1, np.int8))
    return TimingKernels(
        _called(policy, build("decide_one"), (request,), request),
        _called(policy, build("decide_many"), many, request),
    )


def compiled_kernel(policy: Policy, arguments: tuple[Any, ...], positional: bool) -> Callable[..., int]:
    """Return the kernel of `policy`, compiled for the types of `arguments`; raises PolicyError where that fails.

    `positional` tells whether any row is outside the linear model.
    """
    rows, rates, targets, _ = arguments
    first = row_context(policy, rows[:, 0].tolist(), float(rates[0]), float(targets[0]))
    return _called(policy, lambda: policy_kernel(policy, positional), arguments, first)


def row_context(policy: Policy, row: Sequence[float], rate: float, target: float) -> Context:
    """Return what `policy` is asked at a row of the grid, a request rate [1/s] and a target [s]."""
    side = side_of(policy.recomputes, row[kernels.OVERLAP])
    model = kernels.OVERLAP
    return Context._make([*row[:3], rate, target, *row[3:model], side, *row[model:]])


def _called(
    policy: Policy, build: Callable[[], Callable[..., Any]], arguments: tuple[Any, ...], request: Context
) -> Callable[..., Any]:
    """Return the kernel that `build` makes, called once with `arguments`, which compiles it for them.

    `request` is one the policy could be asked to decide. Raises PolicyError where anything of it fails.
    """
    try:
        kernel = build()
        kernel(*arguments)
    except (MemoryError, *ENDS):
        raise
    except BaseException as error:  # Numba refuses in many ways, and foreign code may raise anything
        # What fails as plain Python, too, says why more plainly than Numba can.
        policy.choose(request)
        raise PolicyError(
            f"policy {policy.name} ({policy.origin}): cannot be compiled: {telling_line(error, policy.decide)}"
        ) from error
    return kernel


def _policy_module(policy: Policy, template: ModuleType, positional: bool = False) -> ModuleType:
    """Return the copy of `template` around the decision of `policy`; the same one for the same decision."""
    key = _key(policy, template, positional)
    if key not in _policy_modules:
        register_context_methods()
        given = {
            "decide": njit(**INLINE)(indexed(policy, module_name(key))),
            "RECOMPUTES": _side(policy),
            "N_MODES": len(policy.modes),
            "POSITIONAL": positional,
        }
        _policy_modules[key] = written_module(key, _source(template), given, {})
    return _policy_modules[key]


def indexed(policy: Policy, module: str) -> FunctionType:
    """Return the policy's `decide` for Numba: mode labels become their indices, helper functions compiled ones.

    Numba cannot return one of several strings cheaply, and calls no plain Python function. The decision itself
    stays untouched. A cached kernel imports the `module` its functions claim to come from, so that must be one
    which every process has: the kernel's own, not the policy's, which may have moved.
    """
    assert isinstance(policy.decide, FunctionType)
    return for_numba(policy.decide, policy.modes, module, {})


_DECISION = """\
def entry({names}):
    try:
        answer, mode = decide(Context({names}))
        is_mode = mode >= 0 and mode < N_MODES and mode == int(mode)
    except Exception:
        return NAN
    return float(answer) if is_mode else NAN
"""
# What raises in a C function is printed and forgotten, and the answer is whatever stood there: a caller must see it.


def decision(policy: Policy) -> Any:
    """Return the decision of `policy` as a C function of the fields of `Context`, for compiled code to call.

    It answers NaN where the policy fails or names no mode of its own. Raises PolicyError where it cannot be compiled.
    """
    if DISABLED:
        return nan_where_failing(lambda *fields: policy.choose(Context(*fields))[0])

    def build() -> Any:
        key = fingerprint(policy.decide, extra=("decision", _DECISION, _key(policy, kernels)))[:32]
        register_context_methods()
        given = {"N_MODES": len(policy.modes)}
        return c_function(key, indexed(policy, module_name(key)), Context, _DECISION, given)

    return refusing(
        f"policy {policy.name} ({policy.origin})",
        policy.decide,
        build,
        lambda: policy.choose(Context._make([1.0] * len(Context._fields))),
    )


def _side(policy: Policy) -> float:
    return float(SIDES.index(policy.recomputes))


def _key(policy: Policy, template: ModuleType, positional: bool = False) -> str:
    options = (repr(KERNEL_OPTIONS), repr(INLINE), repr(positional))
    settings = (*_versions(template), *options, policy.recomputes, repr(policy.modes))
    return fingerprint(policy.decide, *_functions(template), indexed, Context, extra=settings)[:32]


def _functions(template: ModuleType) -> list[FunctionType]:
    return [value for value in vars(template).values() if isinstance(value, FunctionType)]


def _versions(template: ModuleType) -> tuple[str, ...]:
    return (*VERSIONS, _source(template).decode())


def _source(template: ModuleType) -> bytes:
    assert template.__file__ is not None
    return Path(template.__file__).read_bytes()
