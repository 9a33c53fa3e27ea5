"""Passes a state of many arrays to compiled code as one address: a type of our own, by Numba's extension interface.

A named tuple of arrays is an argument of several words an array to every compiled function, some 130 for a run of the
cluster simulator. Here it is one: that of a table of the places and shapes of its arrays, from which each is loaded
where it is used. They do not change while compiled code runs, and LLVM is told so: it keeps them in registers. Where a
named tuple tells by `fixed()` which arrays have a last dimension that never changes, that is a constant of the code.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any, NamedTuple

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


class Field(NamedTuple):
    """A field of a reference."""

    name: str
    kind: types.Type
    """Of an array, or of what is referred to within."""
    word: int
    """Where its entries begin."""
    last: int
    """Length of an array's last dimension, 0 where it is not fixed."""


class ReferenceType(types.Type):
    """Type of a reference: two are the same where all names, element types, dimensions and fixed lengths are."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.fields = {field.name: field for field in fields}
        super().__init__(name=f"Reference({', '.join(f'{f.name}: {f.kind}@{f.word}/{f.last}' for f in fields)})")


class Reference:
    """The table of a named tuple, which must outlive it, and its type."""

    __slots__ = ("address", "held", "kind", "table")

    def __init__(self, value: Any) -> None:
        words: list[int] = []
        self.kind = ReferenceType(_layout(value, words))
        self.held = value
        self.table = np.array(words, np.int64)
        self.address = int(self.table.ctypes.data)


def _layout(value: Any, words: list[int]) -> tuple[Field, ...]:
    """Return the fields of `value`, and add what their entries of the table hold to `words`."""
    fields: list[Field] = []
    fixed = value.fixed() if hasattr(value, "fixed") else ()
    for name, item in zip(value._fields, value, strict=True):
        word = len(words)
        if isinstance(item, np.ndarray):
            if not item.flags.c_contiguous:
                raise ValueError(f"{name} is not contiguous")
            words += [item.ctypes.data, item.size, *item.shape]
            last = item.shape[-1] if name in fixed else 0
            fields.append(Field(name, types.Array(from_dtype(item.dtype), item.ndim, "C"), word, last))
        else:
            inner = _layout(item, words)
            within = ReferenceType(tuple(field._replace(word=field.word - word) for field in inner))
            fields.append(Field(name, within, word, 0))
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
        return kind.fields[name].kind if name in kind.fields else None


@lower_getattr_generic(ReferenceType)
def _load(context: Any, builder: Any, kind: ReferenceType, pointer: Any, name: str) -> Any:
    field = kind.fields[name]
    place = builder.gep(pointer, [ir.Constant(_WORD, field.word)])
    if isinstance(field.kind, ReferenceType):
        return place
    return builder.call(_loader(context, builder.module, field.kind, field.last), [place])


def _loader(context: Any, module: Any, kind: Any, last: int) -> Any:
    """Return the function of `module` that loads an array of this `kind`, for LLVM to inline."""
    struct = context.get_value_type(kind)
    name = f"kvsweep.load.{kind.dtype}.{kind.ndim}.{last}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(struct, [_WORD.as_pointer()]), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("alwaysinline")
    builder = ir.IRBuilder(function.append_basic_block())
    (pointer,) = function.args

    def at(index: int, of: Any = _WORD) -> Any:
        place = builder.gep(pointer, [ir.Constant(_WORD, index)])
        value = builder.load(builder.bitcast(place, of.as_pointer()))
        value.set_metadata("invariant.load", module.add_metadata([]))
        return value

    array = make_array(kind)(context, builder)
    array.data = at(0, array.data.type)
    array.nitems = at(1)
    array.itemsize = ir.Constant(_WORD, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    shape = [at(2 + i) for i in range(kind.ndim)]
    if last:
        shape[-1] = ir.Constant(_WORD, last)
    strides = [array.itemsize]
    for length in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], length))
    array.shape, array.strides = cgutils.pack_array(builder, shape), cgutils.pack_array(builder, strides)
    builder.ret(array._getvalue())
    return function
