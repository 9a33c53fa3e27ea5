"""Whole programs, compiled: a function over a state of arrays with all that it calls.

The functions are plain Python and take the state as a named tuple. Compiled, they take a `Reference` to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import FunctionType
from typing import Any

from numba import njit, typeof

from kvsweep.cache import alone
from kvsweep.jit.fingerprint import fingerprint
from kvsweep.jit.functions import DISABLED, for_numba
from kvsweep.jit.modules import KERNELS, VERSIONS, compiled_function, lies_in_cache, module_name, written_module
from kvsweep.jit.reference import Reference

try:
    from kvsweep.jit import internals
except ImportError:  # another Numba: see there
    internals = None  # type: ignore[assignment]

Progress = Callable[[int, int], None]
"""Told how many functions of how many are compiled."""


class Program:
    """`function`, compiled when it is first bound, and cached like the kernels.

    What Numba caches is an entry of one line in a module of its own, named by the digest of all behind it. With
    NUMBA_DISABLE_JIT set it is the function itself.

    Parameters
    ----------
    function
        A module's function, over a named tuple of arrays and further arguments.
    options
        Numba's, for all functions.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        assert isinstance(function, FunctionType)
        self.function = function
        known = internals.known_options if internals else _documented
        self.options = known(options)
        self._entry: Any = None

    @cached_property
    def key(self) -> str:
        """Return the digest of all that the compiled program follows from."""
        machinery = [Path(__file__).with_name(f"{name}.py").read_text("utf-8") for name in ("internals", "reference")]
        settings = (*VERSIONS, repr(sorted(self.options.items())), *machinery)
        return fingerprint(self.function, for_numba, extra=settings)[:32]

    def is_compiled(self) -> bool:
        """Return whether exactly this program lies in the cache, so that no compilation waits."""
        return DISABLED or self._entry is not None or lies_in_cache(self.key)

    def bind(self, state: Any, *others: Any, progress: Progress | None = None) -> Callable[..., Any]:
        """Return the compiled function of what comes after `state`, whose arrays must stay where they are.

        `others` are such arguments, for their types, for which it is compiled now.
        """
        if DISABLED:
            return partial(self.function, state)
        given = Reference(state)
        if self._entry is None:
            with alone(KERNELS, self.key):
                self._entry = self._compiled((given, *others), progress or (lambda done, total: None))
        return partial(self._entry, given)

    def _compiled(self, arguments: tuple[Any, ...], progress: Progress) -> Any:
        kinds, count = tuple(typeof(argument) for argument in arguments), 1
        try:
            inner, outer = internals.one_library(
                self.function.__name__, lambda begun: progress(min(begun, count), count)
            )
            entry, count = self._entry_of(inner, outer)
            entry.compile(kinds)
        except Exception:  # whatever another Numba does not have, or take
            entry, count = self._entry_of({}, {})
            entry.compile(kinds)
        return entry

    def _entry_of(self, inner: Mapping[str, Any], outer: Mapping[str, Any]) -> tuple[Any, int]:
        """Return the entry, not compiled yet, and of how many functions it is."""
        done: dict[int, Any] = {}
        key = self.key
        ready = for_numba(self.function, (), module_name(key), done, {**self.options, **inner})
        names = ", ".join(inspect.signature(self.function).parameters)
        source = f"def entry({names}):\n    return function({names})\n"
        given = {"function": njit(**self.options, **inner)(ready)}
        module = written_module(key, source.encode(), given, {})
        return compiled_function(module, "entry", {"nogil": True, **self.options, **outer}), len(done) + 2


def _documented(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name[0] != "_"}
