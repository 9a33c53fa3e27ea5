"""Passes a state of many arrays to compiled code as one address: a type of our own, by Numba's extension interface.

A named tuple of arrays is an argument of several words an array to every compiled function, some 130 for a run of the
cluster simulator. Here it is one: that of a table of the places and shapes of its arrays, from which each is loaded
where it is used. They do not change while compiled code runs, and LLVM is told so: it keeps them in registers.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import make_array
from numba.np.numpy_support import from_dtype

_WORD = ir.IntType(64)


class ReferenceType(types.Type):
    """Type of a reference: two are the same where all names, element types and dimensions are."""

    def __init__(self, fields: tuple[tuple[str, types.Type, int], ...]) -> None:
        self.fields = {name: (kind, word) for name, kind, word in fields}
        super().__init__(name=f"Reference({', '.join(f'{name}: {kind}@{word}' for name, kind, word in fields)})")


class Reference:
    """The table of a named tuple, which must outlive it, and its type."""

    __slots__ = ("address", "held", "kind", "table")

    def __init__(self, value: Any) -> None:
        words: list[int] = []
        self.kind = ReferenceType(_layout(value, words))
        self.held = value
        self.table = np.array(words, np.int64)
        self.address = int(self.table.ctypes.data)


def _layout(value: Any, words: list[int]) -> tuple[tuple[str, types.Type, int], ...]:
    """Return the fields of `value`, and add what their entries of the table hold to `words`."""
    fields: list[tuple[str, types.Type, int]] = []
    for name, item in zip(value._fields, value, strict=True):
        word = len(words)
        if isinstance(item, np.ndarray):
            if not item.flags.c_contiguous:
                raise ValueError(f"{name} is not contiguous")
            words += [item.ctypes.data, item.size, *item.shape, *item.strides]
            fields.append((name, types.Array(from_dtype(item.dtype), item.ndim, "C"), word))
        else:
            inner = _layout(item, words)
            fields.append((name, ReferenceType(tuple((n, k, w - word) for n, k, w in inner)), word))
    return tuple(fields)


@typeof_impl.register(Reference)
def _typeof(value: Reference, _: Any) -> ReferenceType:
    return value.kind


@register_model(ReferenceType)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: ReferenceType) -> None:
        super().__init__(manager, kind, _WORD.as_pointer())


@unbox(ReferenceType)
def _unbox(kind: ReferenceType, value: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(value, "address")
    pointer = c.pyapi.long_as_voidptr(address)
    c.pyapi.decref(address)
    return NativeValue(c.builder.bitcast(pointer, _WORD.as_pointer()), is_error=c.pyapi.c_api_error())


@infer_getattr
class _Attributes(AttributeTemplate):
    key = ReferenceType

    def generic_resolve(self, kind: Any, name: str) -> Any:  # type: ignore[override]
        return kind.fields[name][0] if name in kind.fields else None


@lower_getattr_generic(ReferenceType)
def _load(context: Any, builder: Any, kind: ReferenceType, pointer: Any, name: str) -> Any:
    field, word = kind.fields[name]
    place = builder.gep(pointer, [ir.Constant(_WORD, word)])
    if isinstance(field, ReferenceType):
        return place
    return builder.call(_loader(context, builder.module, field), [place])


def _loader(context: Any, module: Any, kind: Any) -> Any:
    """Return the function of `module` that loads an array of this `kind`, for LLVM to inline."""
    struct = context.get_value_type(kind)
    name = f"kvsweep.load.{kind.dtype}.{kind.ndim}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(struct, [_WORD.as_pointer()]), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("alwaysinline")
    builder = ir.IRBuilder(function.append_basic_block())
    (pointer,) = function.args

    def at(index: int) -> Any:
        value = builder.load(builder.gep(pointer, [ir.Constant(_WORD, index)]))
        value.set_metadata("invariant.load", module.add_metadata([]))
        return value

    array = make_array(kind)(context, builder)
    array.data = builder.inttoptr(at(0), array.data.type)
    array.nitems = at(1)
    array.itemsize = ir.Constant(_WORD, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    array.shape = cgutils.pack_array(builder, [at(2 + i) for i in range(kind.ndim)])
    array.strides = cgutils.pack_array(builder, [at(2 + kind.ndim + i) for i in range(kind.ndim)])
    builder.ret(array._getvalue())
    return function
