"""Python functions made ready for Numba with all that they call, C functions of them, and why one is refused."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

import numba
from numba import cfunc, njit, types
from numba.extending import overload_method

from kvsweep.errors import PolicyError
from kvsweep.jit.fingerprint import fingerprint
from kvsweep.jit.modules import VERSIONS, module_name, written_module
from kvsweep.policies.context import Context
from kvsweep.policies.registry import reason_of
from kvsweep.signals import ENDS

# Strict IEEE arithmetic: with reassociation or reciprocals allowed the scan runs 1.8 times as fast, and the
# kernel's k, times and verdicts would no longer be the scalar path's to the last bit.
INLINE: dict[str, Any] = {"forceinline": True, "error_model": "numpy"}
DISABLED = bool(getattr(numba.config, "DISABLE_JIT", 0))
"""Whether NUMBA_DISABLE_JIT asks for plain Python, to debug it."""

CONTEXT_METHODS = (
    "clamp",
    "restore_seconds",
    "prefix_seconds",
    "recompute_seconds",
    "total_seconds",
    "allocation",
    "violation",
    "max_violation",
)


def for_numba(
    function: FunctionType,
    modes: tuple[str, ...],
    module: str,
    done: dict[int, Any],
    options: Mapping[str, Any] = INLINE,
) -> FunctionType:
    """Return a copy of `function` that calls compiled ones, with labels of `modes` as their indices.

    Compiled with `options` are those functions, which `done` holds by the id of their source. All claim to come from
    `module`, which every process can import, where a policy's own may have moved.
    """

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
            done[id(value)] = njit(**options)(for_numba(value, modes, module, done, options))
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


_SCORE = """\
def entry({names}):
    try:
        answer = float(decide(Context({names})))
    except Exception:
        return NAN
    return answer
"""
# What raises in a C function is printed and forgotten, and the answer is whatever stood there: a caller must see it.


def score(function: Callable[[Any], float], context: type[Any], what: str) -> Any:
    """Return `function` of a `context`, a named tuple of numbers, as a C function of its fields.

    It answers NaN where the function fails. Raises PolicyError, which calls it `what`, where it cannot be compiled.
    """
    if DISABLED:
        return nan_where_failing(lambda *fields: float(function(context(*fields))))

    def build() -> Any:
        key = fingerprint(function, context, for_numba, extra=("score", _SCORE, *VERSIONS))[:32]
        assert isinstance(function, FunctionType)
        return c_function(key, for_numba(function, (), module_name(key), {}), context, _SCORE, {})

    return refusing(what, function, build)


class NeverAsked(types.WrapperAddressProtocol):
    """Stands where compiled code takes a C function of the fields of `context` and calls none: nothing to compile."""

    def __init__(self, context: type[Any]) -> None:
        self._count = len(context._fields)
        self._function = ctypes.CFUNCTYPE(ctypes.c_double)(lambda: math.nan)

    @property
    def _numba_type_(self) -> types.Type:
        """Type of it within a tuple, too."""
        return types.FunctionType(self.signature())

    def __call__(self, *fields: float) -> float:
        """Answer what no policy may."""
        return math.nan

    def __wrapper_address__(self) -> int:
        return ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def signature(self) -> Any:
        """Return the signature, for Numba."""
        return types.float64(*[types.float64] * self._count)


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


def c_function(key: str, function: FunctionType, context: type[Any], template: str, given: Mapping[str, Any]) -> Any:
    """Return the `template` around `function` as a C function of the fields of `context`; `given` are its constants."""
    signature = types.float64(*[types.float64] * len(context._fields))
    source = template.format(names=", ".join(context._fields))
    names = {"decide": njit(**INLINE)(function), "Context": context, "NAN": math.nan, **given}
    entry = vars(written_module(key, source.encode(), names, {}))["entry"]
    try:
        return cfunc(signature, error_model="numpy", cache=True)(entry)
    except Exception:  # a damaged or read-only cache; what is wrong with the policy shows again
        return cfunc(signature, error_model="numpy")(entry)


def refusing(
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
        raise PolicyError(f"{what}: cannot be compiled: {telling_line(error, function)}") from error


def telling_line(error: BaseException, function: Callable[..., Any]) -> str:
    """Return the telling line of Numba's message and the line of the policy's file it is about."""
    lines = [line.strip(" -") for line in str(error).splitlines()] or [reason_of(error)]
    boilerplate = ("Failed in nopython", "Resolution failure", "During:", "There are", "Enable logging", "Overload ")
    telling = [line for line in lines if line and not line.startswith((*boilerplate, "File ", ">>>"))]
    name = Path(function.__code__.co_filename).name
    place = [match[1] for line in lines if (match := re.match(rf'File ".*{re.escape(name)}", line (\d+)', line))]
    where = f" (line {place[-1]})" if place else ""
    said = telling[0][:200] if telling else type(error).__name__
    return f"{said}{where}; allowed: arithmetic on ctx, loops, branches, helpers"


@cache
def register_context_methods() -> None:
    """Teach Numba the helpers of `Context`, compiled from the very methods the scalar path calls."""
    for name in CONTEXT_METHODS:
        _register(name, njit(**INLINE)(getattr(Context, name)))


def _register(name: str, function: Callable[..., Any]) -> None:
    # NamedUniTuple is the type of every named tuple of equal fields: a method must not share its name with a
    # field. Numba compares the two signatures to the letter, which leaves no room for annotations.
    def overload(self, argument):  # type: ignore[no-untyped-def]
        return (lambda self, argument: function(self, argument)) if self.instance_class is Context else None

    overload_method(types.NamedUniTuple, name, jit_options=INLINE)(overload)  # type: ignore[call-arg]
