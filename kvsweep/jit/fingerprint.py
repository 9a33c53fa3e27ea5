"""A digest of everything a compiled function depends on, so that an edit anywhere never meets an old kernel.

Numba's own file cache looks at one file's time stamp only: it misses edits of callees, helpers in other files
and changed global constants. Here the digest walks the code objects and the values they reach. What it cannot look
into counts as another value in every process, so that what is made of it is made anew.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
import sysconfig
from collections.abc import Callable, Mapping
from enum import Enum, EnumType
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import types
from numba.core.dispatcher import Dispatcher

_COMPILERS = ("numpy", "numba", "llvmlite")
_PYTHON = Path(sysconfig.get_path("stdlib"))
_PLAIN = (int, float, complex, str, bytes)
_PROCESS = secrets.token_hex(8)


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
    """Return the texts that stand for `value`: bytecode of functions, values of constants, names of the rest."""
    if isinstance(value, Dispatcher):  # which keeps the Python function it was made of
        return ["jitted", *_parts(value.targetoptions, seen), *_parts(value.py_func, seen)]
    if isinstance(value, FunctionType):
        return _function_parts(value, seen)
    if isinstance(value, type):
        return _class_parts(value, seen)
    if isinstance(value, tuple | list | Mapping | frozenset | set):
        return _collection_parts(value, seen)
    return [_text(value, seen)]


def _text(value: Any, seen: set[int]) -> str:
    """Return the text that stands for a `value` that holds no others."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, Enum):
        return " ".join((kind, value.name, *_parts(value.value, seen)))
    if value is None or value is ... or value is NotImplemented:
        return repr(value)
    for plain in _PLAIN:
        if isinstance(value, plain):  # a class of its own may say something else of itself
            return f"{kind} {plain.__repr__(value)}"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, BuiltinFunctionType) or (callable(value) and type(value).__module__ == "numpy"):
        return f"{kind} {value.__module__}.{value.__name__}"
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return f"{kind} {value.dtype!r} {value.shape} {value.tobytes().hex()}"  # as it is frozen into a kernel
    if isinstance(value, np.dtype) or (isinstance(value, types.Type) and not isinstance(value, types.ClassType)):
        return f"{kind} {value!r}"
    return f"{kind}, which cannot be followed: {_PROCESS} {id(value)}"


def _collection_parts(value: Any, seen: set[int]) -> list[str]:
    if not isinstance(value, tuple | frozenset):
        if id(value) in seen:  # it may hold itself
            return [f"again {type(value).__name__}"]
        seen.add(id(value))
    if isinstance(value, Mapping):
        value = tuple(value.items())
    parts = [_parts(item, seen) for item in value]
    if isinstance(value, frozenset | set):  # in the order of hashes, which is another in every process
        parts.sort()
    fields = getattr(value, "_fields", ()) if isinstance(value, tuple) else ()
    return [type(value).__qualname__, *map(str, fields), "(", *(part for each in parts for part in each), ")"]


def _function_parts(function: FunctionType, seen: set[int]) -> list[str]:
    if id(function) in seen:
        return [f"again {function.__qualname__}"]
    seen.add(id(function))
    if _is_of_library(function.__module__):
        return [f"function {function.__module__}.{function.__qualname__}"]
    code = function.__code__
    parts = [function.__qualname__, *_code_parts(code)]
    parts += _parts(function.__defaults__ or (), seen) + _parts(function.__kwdefaults__ or {}, seen)
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
    if module in way or _is_of_library(module.__name__):  # modules may import each other
        return []
    parts: list[str] = []
    for attribute in sorted(names & vars(module).keys()):
        value = vars(module)[attribute]
        parts += [attribute, *_parts(value, seen)]
        if isinstance(value, ModuleType):
            parts += _attribute_parts(value, names, seen, (*way, module))
    return parts


def _class_parts(kind: type, seen: set[int]) -> list[str]:
    """Return the parts of a class: its fields, methods and constants, and those of the classes it is made of."""
    parts = [f"class {kind.__module__}.{kind.__qualname__}"]
    if id(kind) in seen or _is_of_library(kind.__module__):
        return parts
    seen.add(id(kind))
    parts += [part for base in kind.__bases__ for part in _parts(base, seen)]
    parts += map(str, getattr(kind, "_fields", ()))
    if isinstance(kind, EnumType):
        members: Mapping[str, Any] = kind.__members__
        parts += [part for member in members.values() for part in _parts(member, seen)]
    for name, member in sorted(vars(kind).items()):
        # Numba's compiled code reaches no double underscores; those with one are Python's own in enumerations.
        if name.startswith("__") or (isinstance(kind, EnumType) and (name.startswith("_") or isinstance(member, kind))):
            continue
        parts += [name, *_member_parts(member, seen)]
    return parts


def _member_parts(member: Any, seen: set[int]) -> list[str]:
    if isinstance(member, staticmethod | classmethod):
        return _parts(member.__func__, seen)
    if isinstance(member, property):
        return _parts(member.fget, seen)
    if type(member).__module__ in ("builtins", "collections", "_collections") and hasattr(type(member), "__get__"):
        return [type(member).__name__] if not isinstance(member, FunctionType) else _parts(member, seen)
    return _parts(member, seen)


@cache
def _is_of_library(module: str | None) -> bool:
    """Return whether names say enough of what is in `module`: Python's own, or what versions are known of anyway."""
    top = (module or "").partition(".")[0]
    if top not in sys.stdlib_module_names:
        return top in _COMPILERS
    file = getattr(sys.modules.get(top), "__file__", None)  # a helper may have the name of a module of Python
    return file is None or (Path(file).is_relative_to(_PYTHON) and "site-packages" not in file)


def _code_parts(code: CodeType) -> list[str]:
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    parts = [code.co_code.hex(), code.co_exceptiontable.hex(), repr(shape)]
    parts += [" ".join(names) for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)]
    for constant in code.co_consts:
        parts += _code_parts(constant) if isinstance(constant, CodeType) else _parts(constant, set())
    return parts


def _names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names
