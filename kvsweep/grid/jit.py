"""Compiles policies to kernels: Numba's options, the cache of compiled kernels and its keys live here only."""

from __future__ import annotations

import atexit
import contextlib
import dis
import importlib.util
import inspect
import math
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import cfunc, njit, types
from numba.core.caching import FunctionCache
from numba.core.codegen import CPUCodeLibrary
from numba.core.cpu import CPUTargetOptions
from numba.extending import overload_method

from kvsweep.cache import cache_directory, write_whole
from kvsweep.costs import placement, restore
from kvsweep.errors import PolicyError
from kvsweep.grid import kernels, timing
from kvsweep.grid.fingerprint import fingerprint
from kvsweep.policies.context import SIDES, Context
from kvsweep.policies.registry import Policy, reason_of
from kvsweep.signals import ENDS

# Strict IEEE arithmetic: with reassociation or reciprocals allowed the scan runs 1.8 times as fast, and the
# kernel's k, times and verdicts would no longer be the scalar path's to the last bit.
_INLINE: dict[str, Any] = {"forceinline": True, "error_model": "numpy"}
_KERNEL: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

_OPTIMIZE = "_optimize_final_module"
"""Method of Numba, undocumented, with which it optimises a function and all below it."""
_COMPILING = threading.Lock()
_DISABLED = bool(getattr(numba.config, "DISABLE_JIT", 0))
"""Whether NUMBA_DISABLE_JIT asks for plain Python, to debug it."""


KERNELS = "kernels"
"""Kind of what is cached: compiled kernels."""

_METHODS = (
    "clamp",
    "restore_seconds",
    "recompute_seconds",
    "total_seconds",
    "allocation",
    "violation",
    "max_violation",
)


def is_compiled(policy: Policy, template: ModuleType = kernels) -> bool:
    """Return whether the `template` around exactly this policy lies in the cache, so that no compilation waits."""
    try:
        return any((cache_directory(KERNELS) / _key(policy, template) / "__pycache__").glob("*.nbc"))
    except Exception:  # the policy's constants are foreign code, too; compiling it will say what is wrong
        return False


@cache
def row_kernel() -> Callable[..., None]:
    """Return the compiled `kernels.fill_rows`."""
    key = fingerprint(kernels.fill_rows, extra=(*_versions(kernels), repr(_KERNEL)))[:32]
    inlined = {
        function.__name__: njit(**_INLINE)(function)
        for function in (placement.miss_blocks, placement.residency, restore.blended_throughput)
    }
    module = _module(key, _source(kernels), {}, inlined)
    return _compiled(module, "fill_rows")


class TimingKernels(NamedTuple):
    """`timing.decide_one` and `timing.decide_many`, compiled around the decision of one policy."""

    one: Callable[[Context], tuple[float, int]]
    many: Callable[..., None]


_policy_modules: dict[str, ModuleType] = {}


def policy_kernel(policy: Policy) -> Callable[..., int]:
    """Return `kernels.evaluate_rows` compiled around the decision of `policy`."""
    return _compiled(_policy_module(policy, kernels), "evaluate_rows")


def timing_kernels(policy: Policy) -> TimingKernels:
    """Return what the overhead harness times of `policy`, compiled; raises PolicyError where that fails."""

    def build(name: str) -> Callable[[], Callable[..., Any]]:
        return lambda: _compiled(_policy_module(policy, timing), name)

    request = Context._make([1.0] * len(Context._fields))._replace(recomputes=_side(policy))
    many = (np.ones((len(request), 1)), 1, np.empty(1), np.empty(1, np.int8))
    return TimingKernels(
        _called(policy, build("decide_one"), (request,), request),
        _called(policy, build("decide_many"), many, request),
    )


def compiled_kernel(policy: Policy, arguments: tuple[Any, ...]) -> Callable[..., int]:
    """Return the kernel of `policy`, compiled for the types of `arguments`; raises PolicyError where that fails."""
    rows, rates, targets, _ = arguments
    values = rows[:, 0].tolist()
    first = Context._make([*values[:3], float(rates[0]), float(targets[0]), *values[3:], _side(policy)])
    return _called(policy, lambda: policy_kernel(policy), arguments, first)


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
            f"policy {policy.name} ({policy.origin}): cannot be compiled: {_reason(error, policy.decide)}"
        ) from error
    return kernel


def _policy_module(policy: Policy, template: ModuleType) -> ModuleType:
    """Return the copy of `template` around the decision of `policy`; the same one for the same decision."""
    key = _key(policy, template)
    if key not in _policy_modules:
        _register_context_methods()
        given = {
            "decide": njit(**_INLINE)(indexed(policy, _module_name(key))),
            "RECOMPUTES": _side(policy),
            "N_MODES": len(policy.modes),
        }
        _policy_modules[key] = _module(key, _source(template), given, {})
    return _policy_modules[key]


def _reason(error: BaseException, function: Callable[..., Any]) -> str:
    """Return the telling line of Numba's message and the line of the policy's file it is about."""
    lines = [line.strip(" -") for line in str(error).splitlines()] or [reason_of(error)]
    boilerplate = ("Failed in nopython", "Resolution failure", "During:", "There are", "Enable logging", "Overload ")
    telling = [line for line in lines if line and not line.startswith((*boilerplate, "File ", ">>>"))]
    name = Path(function.__code__.co_filename).name
    place = [match[1] for line in lines if (match := re.match(rf'File ".*{re.escape(name)}", line (\d+)', line))]
    where = f" (line {place[-1]})" if place else ""
    said = telling[0][:200] if telling else type(error).__name__
    return f"{said}{where}; allowed: arithmetic on ctx, loops, branches, helpers"


def indexed(policy: Policy, module: str) -> FunctionType:
    """Return the policy's `decide` for Numba: mode labels become their indices, helper functions compiled ones.

    Numba cannot return one of several strings cheaply, and calls no plain Python function. The decision itself
    stays untouched. A cached kernel imports the `module` its functions claim to come from, so that must be one
    which every process has: the kernel's own, not the policy's, which may have moved.
    """
    assert isinstance(policy.decide, FunctionType)
    return _for_numba(policy.decide, policy.modes, module, {})


def _for_numba(
    function: FunctionType,
    modes: tuple[str, ...],
    module: str,
    done: dict[int, Any],
    options: Mapping[str, Any] = _INLINE,
    inlined: frozenset[int] = frozenset(),
) -> FunctionType:
    def index_of(constant: Any) -> Any:
        if isinstance(constant, tuple):
            items = [index_of(item) for item in constant]
            return type(constant)(*items) if hasattr(constant, "_fields") else tuple(items)
        return modes.index(constant) if isinstance(constant, str) and constant in modes else constant

    def compilable(value: Any) -> Any:
        if not isinstance(value, FunctionType):
            return index_of(value)
        if id(value) not in done:
            done[id(value)] = value  # a recursive helper meets itself uncompiled, which Numba then reports
            own = {**options, "forceinline": True} if id(value) in inlined else options
            done[id(value)] = njit(**own)(_for_numba(value, modes, module, done, options, inlined))
        return done[id(value)]

    code = function.__code__
    code = code.replace(co_consts=tuple(index_of(constant) for constant in code.co_consts))
    space = function.__globals__
    names = {name: compilable(space[name]) for name in code.co_names if name in space}
    defaults = tuple(compilable(value) for value in function.__defaults__ or ())
    closure = tuple(CellType(compilable(cell.cell_contents)) for cell in function.__closure__ or ())
    copy = FunctionType(code, {**space, **names}, function.__name__, defaults or None, closure or None)
    copy.__module__ = module
    return copy


def program(function: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """Return `function` compiled with every Python function it reaches, cached like the kernels.

    What Numba caches is an entry of one line in a module of its own, named by the digest of all behind it. With
    NUMBA_DISABLE_JIT set it is the function itself.
    """
    if _DISABLED:
        return function
    assert isinstance(function, FunctionType)
    key = _program_key(function, options)
    once = _called_once(function)
    options = known_options(options)
    inner = njit(**options)(_for_numba(function, (), _module_name(key), {}, options, once))
    names = ", ".join(inspect.signature(function).parameters)
    source = f"def entry({names}):\n    return function({names})\n"
    entry: Any = _compiled(_module(key, source.encode(), {"function": inner}, {}), "entry", {"nogil": True, **options})

    def run(*arguments: Any) -> Any:
        if entry.signatures:
            return entry(*arguments)
        with _one_optimization(function.__name__):
            return entry(*arguments)

    return run


@contextlib.contextmanager
def _one_optimization(name: str) -> Iterator[None]:
    """Have LLVM optimise the whole of program `name` once, and not each of its functions with all below it, too.

    That makes the code no slower and compiles it in 0.6 of the time. Numba has no option for it.
    """
    whole = getattr(CPUCodeLibrary, _OPTIMIZE, None)
    if whole is None:  # a Numba without it compiles for longer
        yield
        return

    def optimize(library: CPUCodeLibrary) -> None:
        if library.name == name:
            whole(library)

    with _COMPILING:
        setattr(CPUCodeLibrary, _OPTIMIZE, optimize)
        try:
            yield
        finally:
            setattr(CPUCodeLibrary, _OPTIMIZE, whole)


def _called_once(function: FunctionType) -> frozenset[int]:
    """Return the functions that `function` reaches through one call alone, by their id.

    Inlining these costs no code, and saves passing a state of a dozen arrays, which is more than a hundred words.
    """
    calls: dict[int, int] = {}
    seen, ahead = {id(function)}, [function]
    while ahead:
        caller = ahead.pop()
        for step in dis.get_instructions(caller):
            callee = caller.__globals__.get(step.argval) if step.opname == "LOAD_GLOBAL" else None
            if isinstance(callee, FunctionType):
                calls[id(callee)] = calls.get(id(callee), 0) + 1
                if id(callee) not in seen:
                    seen.add(id(callee))
                    ahead.append(callee)
    return frozenset(callee for callee, count in calls.items() if count == 1)


def program_is_compiled(function: Callable[..., Any], options: Mapping[str, Any]) -> bool:
    """Return whether `program` of exactly this function lies in the cache, so that no compilation waits."""
    return _DISABLED or any((cache_directory(KERNELS) / _program_key(function, options) / "__pycache__").glob("*.nbc"))


def known_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options` without those of private names that this Numba lacks; programs are only slower for it."""
    return {name: value for name, value in options.items() if name[0] != "_" or hasattr(CPUTargetOptions, name)}


def _program_key(function: Callable[..., Any], options: Mapping[str, Any]) -> str:
    settings = (numba.__version__, sys.version, repr(sorted(known_options(options).items())))
    return fingerprint(function, _called_once, extra=settings)[:32]


_DECISION = """\
def entry({names}):
    try:
        answer, mode = decide(Context({names}))
        is_mode = mode >= 0 and mode < N_MODES and mode == int(mode)
    except Exception:
        return NAN
    return float(answer) if is_mode else NAN
"""
_SCORE = """\
def entry({names}):
    try:
        answer = float(decide(Context({names})))
    except Exception:
        return NAN
    return answer
"""
# What raises in a C function is printed and forgotten, and the answer is whatever stood there: a caller must see it.


def decision(policy: Policy) -> Any:
    """Return the decision of `policy` as a C function of the fields of `Context`, for compiled code to call.

    It answers NaN where the policy fails or names no mode of its own. Raises PolicyError where it cannot be compiled.
    """
    if _DISABLED:
        return nan_where_failing(lambda *fields: policy.choose(Context(*fields))[0])

    def build() -> Any:
        key = fingerprint(policy.decide, extra=("decision", _DECISION, _key(policy, kernels)))[:32]
        _register_context_methods()
        given = {"N_MODES": len(policy.modes)}
        return _c_function(key, indexed(policy, _module_name(key)), Context, _DECISION, given)

    return _refusing(
        f"policy {policy.name} ({policy.origin})",
        policy.decide,
        build,
        lambda: policy.choose(Context._make([1.0] * len(Context._fields))),
    )


def score(function: Callable[[Any], float], context: type[Any], what: str) -> Any:
    """Return `function` of a `context`, a named tuple of numbers, as a C function of its fields.

    It answers NaN where the function fails. Raises PolicyError, which calls it `what`, where it cannot be compiled.
    """
    if _DISABLED:
        return nan_where_failing(lambda *fields: float(function(context(*fields))))

    def build() -> Any:
        key = fingerprint(function, context, extra=("score", _SCORE, numba.__version__, sys.version))[:32]
        assert isinstance(function, FunctionType)
        return _c_function(key, _for_numba(function, (), _module_name(key), {}), context, _SCORE, {})

    return _refusing(what, function, build)


def nan_where_failing(answer: Callable[..., float]) -> Callable[..., float]:
    """Return plain `answer` as what `decision` and `score` compile answers: NaN where it raises."""

    def ask(*fields: float) -> float:
        try:
            return answer(*fields)
        except ENDS:
            raise
        except BaseException:  # foreign code may raise anything
            return math.nan

    return ask


def _c_function(key: str, function: FunctionType, context: type[Any], template: str, given: Mapping[str, Any]) -> Any:
    """Return the `template` around `function` as a C function of the fields of `context`; `given` are its constants."""
    signature = types.float64(*[types.float64] * len(context._fields))
    source = template.format(names=", ".join(context._fields))
    names = {"decide": njit(**_INLINE)(function), "Context": context, "NAN": math.nan, **given}
    entry = vars(_module(key, source.encode(), names, {}))["entry"]
    try:
        return cfunc(signature, error_model="numpy", cache=True)(entry)
    except Exception:  # a damaged or read-only cache; what is wrong with the policy shows again
        return cfunc(signature, error_model="numpy")(entry)


def _refusing(
    what: str, function: Callable[..., Any], build: Callable[[], Any], ask: Callable[[], Any] = lambda: None
) -> Any:
    """Return what `build` compiles of `function`; raises PolicyError, which calls it `what`, where that fails.

    What fails as plain Python, too, where somebody does `ask` it, says why more plainly than Numba can.
    """
    try:
        return build()
    except (MemoryError, *ENDS):
        raise
    except BaseException as error:  # as in `_called`
        ask()
        raise PolicyError(f"{what}: cannot be compiled: {_reason(error, function)}") from error


def _side(policy: Policy) -> float:
    return float(SIDES.index(policy.recomputes))


def _key(policy: Policy, template: ModuleType) -> str:
    settings = (*_versions(template), repr(_KERNEL), repr(_INLINE), policy.recomputes, repr(policy.modes))
    methods = [getattr(Context, name) for name in _METHODS]
    return fingerprint(policy.decide, *_functions(template), indexed, *methods, extra=settings)[:32]


def _functions(template: ModuleType) -> list[FunctionType]:
    return [value for value in vars(template).values() if isinstance(value, FunctionType)]


def _versions(template: ModuleType) -> tuple[str, ...]:
    return (numba.__version__, sys.version, _source(template).decode())


def _source(template: ModuleType) -> bytes:
    assert template.__file__ is not None
    return Path(template.__file__).read_bytes()


def _module_name(key: str) -> str:
    return f"kvsweep_kernel_{key}"


def _module(key: str, source: bytes, before: dict[str, Any], after: dict[str, Any]) -> ModuleType:
    """Return a module of `source` under a name and a folder of its own, made by its `key`.

    Numba files a compiled function beside its source and finds it again by module name, so both carry the key:
    a changed dependency is a new key and cannot meet an old kernel, in this process or another.
    """
    name = _module_name(key)
    folder = cache_directory(KERNELS) / key
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.py"
        if not path.exists() or path.read_bytes() != source:
            write_whole(path, source)
    except OSError:  # read-only home: compile for this process only
        folder = Path(tempfile.mkdtemp(prefix="kvsweep-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        path = folder / f"{name}.py"
        write_whole(path, source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(before)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    vars(module).update(after)
    return module


class _ForgivingCache(FunctionCache):
    """Numba's cache of a kernel on disk, where a damaged or full folder costs a compilation and never the run."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the cached kernel, or None where there is none that can be read."""
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:  # whatever unpickling a damaged file raises
            with contextlib.suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled kernel where the disk lets it."""
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def _compiled(module: ModuleType, name: str, options: Mapping[str, Any] = _KERNEL) -> Callable[..., Any]:
    """Return the compiled function `name` of `module`, which holds it from then on."""
    function = vars(module)[name]
    if isinstance(function, FunctionType):
        kernel = vars(module)[name] = njit(**options)(function)
        # What `cache=True` would set; a cache that was filled and is now read-only has no place for Numba's files.
        with contextlib.suppress(RuntimeError):
            kernel._cache = _ForgivingCache(kernel.py_func)  # type: ignore[no-untyped-call]
        return kernel  # type: ignore[no-any-return]
    return function  # type: ignore[no-any-return]


@cache
def _register_context_methods() -> None:
    """Teach Numba the helpers of `Context`, compiled from the very methods the scalar path calls."""
    for name in _METHODS:
        _register(name, njit(**_INLINE)(getattr(Context, name)))


def _register(name: str, function: Callable[..., Any]) -> None:
    # NamedUniTuple is the type of every named tuple of equal fields: a method must not share its name with a
    # field. Numba compares the two signatures to the letter, which leaves no room for annotations.
    def overload(self, argument):  # type: ignore[no-untyped-def]
        return (lambda self, argument: function(self, argument)) if self.instance_class is Context else None

    overload_method(types.NamedUniTuple, name, jit_options=_INLINE)(overload)  # type: ignore[call-arg]
