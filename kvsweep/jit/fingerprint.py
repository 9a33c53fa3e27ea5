"""A digest of everything a compiled function depends on, so that an edit anywhere never meets an old kernel.

Numba's own file cache looks at one file's time stamp only: it misses edits of callees, helpers in other files
and changed global constants. Here the digest walks the code objects and the values they reach.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any


def fingerprint(*functions: Callable[..., Any], extra: tuple[str, ...] = ()) -> str:
    """Return a hex digest of `functions`, of all Python functions and constants they reach, and of `extra`."""
    seen: set[int] = set()
    digest = hashlib.sha256()
    for text in extra:
        digest.update(text.encode() + b"\0")
    for function in functions:
        for part in _parts(function, seen):
            digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _parts(value: Any, seen: set[int]) -> list[str]:
    """Return the texts that stand for `value`: bytecode of functions, repr of constants, names of the rest."""
    # A Numba dispatcher keeps the Python function it was made of.
    value = getattr(value, "py_func", value)
    if isinstance(value, FunctionType):
        return _function_parts(value, seen)
    if isinstance(value, list):
        if id(value) in seen:  # a list may hold itself
            return ["again list"]
        seen.add(id(value))
    if isinstance(value, tuple | list):
        return [*getattr(value, "_fields", ()), "("] + [part for item in value for part in _parts(item, seen)] + [")"]
    if isinstance(value, type):
        return _class_parts(value, seen)
    if isinstance(value, ModuleType | BuiltinFunctionType):
        return [f"{type(value).__name__} {value.__name__}"]
    if callable(value) and type(value).__module__ == "numpy":  # whose repr may tell where in memory it lies
        return [f"{type(value).__name__} {value.__module__}.{value.__name__}"]
    if hasattr(value, "tobytes"):  # a NumPy array or scalar is frozen into the kernel with its bytes
        return [f"{type(value).__name__} {value!r}", value.tobytes().hex()]
    return [f"{type(value).__name__} {value!r}"]


def _function_parts(function: FunctionType, seen: set[int]) -> list[str]:
    if id(function) in seen:
        return [f"again {function.__qualname__}"]
    seen.add(id(function))
    code = function.__code__
    parts = [function.__qualname__, *_code_parts(code)]
    parts += _parts(function.__defaults__ or (), seen)
    parts += [part for cell in function.__closure__ or () for part in _parts(cell.cell_contents, seen)]
    names = _names(code)
    for name in sorted(names & function.__globals__.keys()):
        value = function.__globals__[name]
        parts += [name, *_parts(value, seen)]
        if isinstance(value, ModuleType):
            parts += _attribute_parts(value, names, seen)
    return parts


def _attribute_parts(
    module: ModuleType, names: set[str], seen: set[int], way: tuple[ModuleType, ...] = ()
) -> list[str]:
    """Return the parts of what `names` can mean in `module`: ``package.helper.f(x)`` names every step of the `way`."""
    if module in way:  # modules may import each other
        return []
    parts: list[str] = []
    for attribute in sorted(names & vars(module).keys()):
        value = vars(module)[attribute]
        parts += [attribute, *_parts(value, seen)]
        if isinstance(value, ModuleType):
            parts += _attribute_parts(value, names, seen, (*way, module))
    return parts


def _class_parts(kind: type, seen: set[int]) -> list[str]:
    if id(kind) in seen or kind.__module__ == "builtins":
        return [f"class {kind.__module__}.{kind.__qualname__}"]
    seen.add(id(kind))
    parts = [f"class {kind.__module__}.{kind.__qualname__}", *getattr(kind, "_fields", ())]
    for name, member in sorted(vars(kind).items()):
        if isinstance(member, FunctionType) and not name.startswith("__"):
            parts += [name, *_parts(member, seen)]
    return parts


def _code_parts(code: CodeType) -> list[str]:
    parts = [code.co_code.hex(), " ".join(code.co_names), " ".join(code.co_varnames)]
    for constant in code.co_consts:
        parts += _code_parts(constant) if isinstance(constant, CodeType) else [_constant_text(constant)]
    return parts


def _constant_text(constant: Any) -> str:
    """Return the repr of a literal; that of a set is in the order of hashes, which is another in every process."""
    return str(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


def _names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names
