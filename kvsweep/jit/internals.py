"""What kvsweep takes of Numba beyond its documented interfaces: all of it is here, and none of it is needed.

Numba makes of each function a library of its own: machine code, wrappers to call it from Python and C, and all that it
calls optimised once more. Of a program of three hundred functions that is nine tenths of the work, and nobody calls
the inner ones. Here their code goes into one module, which is optimised and becomes machine code once, and what Numba
makes of an operator on the same types is looked up once. A Numba that lacks one of these pieces compiles for longer,
and the same: `kvsweep.jit.programs` does without what fails here.
"""

# mypy: allow-untyped-calls, disable-error-code="attr-defined,misc,override"

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import typed_passes as typed
from numba.core import untyped_passes as untyped
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, _LowerResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, _pass_registry, register_pass
from numba.core.cpu import CPUTargetOptions
from numba.core.datamodel import models, register_default
from numba.core.typing.templates import _OverloadFunctionTemplate


def known_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options` without those of private names that this Numba lacks; programs are only slower for it."""
    return {name: value for name, value in options.items() if name[0] != "_" or hasattr(CPUTargetOptions, name)}


def one_library(name: str, begun: Callable[[int], None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the inner functions and of the entry of program `name`, to share one library.

    `begun` is told how many functions were begun before each. What compiling with these options raises says that this
    Numba cannot, and that it is to be done without.
    """
    whole = _Whole(name, begun)
    outer = {"pipeline_class": type("Entry", (_Pieces,), {"whole": whole, "is_entry": True}), "no_cfunc_wrapper": True}
    return whole.inner, outer


class _Whole:
    """What the functions of a program share while it is compiled."""

    def __init__(self, name: str, begun: Callable[[int], None]) -> None:
        self.name, self.begun, self.count = name, begun, 0
        pieces = type("Pieces", (_Pieces,), {"whole": self})
        self.inner = {"pipeline_class": pieces, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        self.code: _Library | None = None
        self.typing: Any = None


class _Library(JITCodeLibrary):
    """All functions of a program, of which only what Python calls can be called from outside."""

    _module: Any = None

    def create_ir_module(self, name: str) -> Any:
        if self._module is None:
            self._module = super().create_ir_module(self.name)
        return self._module

    def add_ir_module(self, module: Any) -> None:
        if module is not self._module:  # which is written and read again when it is whole
            super().add_ir_module(module)

    def add_linking_library(self, library: Any) -> None:
        if library is not self:
            super().add_linking_library(library)

    def add_llvm_module(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout
        self._final_module.link_in(module)  # not optimised alone: the whole will be

    def finalize(self) -> None:
        super().add_ir_module(self._module)
        super().finalize()

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and not function.name.startswith("_ZN7cpython"):
                function.linkage = "internal"
        passes, builder = self._codegen._module_pass_manager()  # Numba's cheaper ones before them gain nothing here
        passes.run(self._final_module, builder)


class _Pieces(CompilerBase):
    """Compiles a function into the library; passes for what programs do not contain are left out."""

    whole: _Whole
    is_entry = False

    def __init__(self, typing_context: Any, target_context: Any, *rest: Any) -> None:
        whole = self.whole
        if whole.typing is None:
            target_context.refresh()
            whole.typing = _twin(typing_context, _Typing, operators={}, attributes={}, inner=whole.inner)
        once = {"refresh": lambda: None}  # it was, above: not for every function
        super().__init__(whole.typing, _twin(target_context, _Target, typing_context=whole.typing, **once), *rest)
        self.state.targetctx.__dict__.pop("refresh")

    def define_pipelines(self) -> list[Any]:
        self.whole.begun(self.whole.count)
        self.whole.count += 1
        manager = _Passes(self.whole.name)
        for step in (
            untyped.TranslateByteCode, untyped.FixupArgs, untyped.IRProcessing, untyped.RewriteSemanticConstants,
            untyped.DeadBranchPrune, _SingleAssignment, typed.NopythonTypeInference, _StripPhis, _Legalization,
            _IntoLibrary, typed.NoPythonBackend,
        ):  # fmt: skip
            manager.add_pass(step, step.__name__)
        manager.finalize()
        return [manager]


class _Passes(PassManager):
    """Runs passes without accounts of each, and without analysing anew what none of them reads."""

    def run(self, state: Any) -> None:
        with global_compiler_lock:
            for step, _ in self.passes:
                one = _pass_registry.get(step).pass_inst
                one.analysis = self._analysis
                one.run_initialization(state)
                one.run_pass(state)
                one.run_finalizer(state)


# Each of these passes ends with an analysis of how long variables live, which only counted references need.


@register_pass(mutates_CFG=False, analysis_only=False)
class _SingleAssignment(untyped.ReconstructSSA):
    _name = "single_assignment"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = untyped.reconstruct_ssa(state.func_ir)
        self._patch_locals(state)
        state.func_ir._definitions = untyped.build_definitions(state.func_ir.blocks)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _StripPhis(typed.PreLowerStripPhis):
    _name = "strip_phis_alone"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Legalization(typed.IRLegalization):
    _name = "legalization"

    def run_pass(self, state: Any) -> bool:
        return bool(state.flags.nrt) and bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class _IntoLibrary(typed.NativeLowering):
    _name = "into_library"

    def run_pass(self, state: Any) -> bool:
        whole, is_entry = state.pipeline.whole, state.pipeline.is_entry
        if whole.code is None:
            whole.code = _Library(state.targetctx.codegen(), whole.name)
            whole.code.enable_object_caching()
        state["library"] = whole.code
        state.flags.no_compile = not is_entry
        super().run_pass(state)
        if not is_entry:
            made = state["cr"]
            key: Any = [].append  # Numba finds the function by it; it must be of this type, and nobody calls it
            state["cr"] = _LowerResult(made.fndesc, made.call_helper, cfunc=key, env=made.env)
            state.targetctx.insert_user_function(key, made.fndesc, [whole.code])
        return True


def _twin(context: Any, kind: Any, **own: Any) -> Any:
    """Return a copy of `context` of its type with the methods of `kind` before them, and attributes of its `own`."""
    joined: Any = _joined(kind, cast(Any, type(context)))
    twin = joined.__new__(joined)
    twin.__dict__.update(context.__dict__, **own)
    return twin


@cache
def _joined(kind: type[Any], context: type[Any]) -> type[Any]:
    return type(kind.__name__, (kind, context), {})


class _Target:
    """Of a target context: what takes an item of an array, or sets it, is a function, and not written out each time."""

    def get_function(self, function: Any, signature: Any, _firstcall: bool = True) -> Any:
        written: Any = super().get_function(function, signature, _firstcall)
        if getattr(function, "typing_key", None) not in (operator.getitem, operator.setitem):
            return written
        kinds: tuple[Any, ...] = *signature.args, signature.return_type
        array, index, *value = kinds
        plain = types.Number | types.Boolean | types.NoneType
        if not self.enable_nrt:  # a row keeps no count of what it is of
            plain |= types.Array
        is_plain = isinstance(index, types.Integer | types.UniTuple) and all(isinstance(kind, plain) for kind in value)
        if not is_plain or not isinstance(array, types.Array) or self.enable_boundscheck:
            return written
        return partial(self._called, written, signature, f"kvsweep.{function.typing_key.__name__}{signature}")

    def _called(
        self, written: Any, signature: Any, name: str, builder: Any, values: Sequence[Any], loc: Any = None
    ) -> Any:
        function = builder.module.globals.get(name)
        if function is None:
            is_void = signature.return_type == types.void
            kinds = [self.get_value_type(kind) for kind in signature.args]
            result = ir.VoidType() if is_void else self.get_value_type(signature.return_type)
            function = ir.Function(builder.module, ir.FunctionType(result, kinds), name)
            function.attributes.add("alwaysinline")
            inside = ir.IRBuilder(function.append_basic_block())
            found = written(inside, function.args)
            _ = inside.ret_void() if is_void else inside.ret(found)
        return builder.call(function, values)


class _Typing:
    """Of a typing context: knows operators that remember, and whose implementations are pieces of the program."""

    operators: dict[types.Function, _Operator]
    attributes: dict[tuple[types.Type, str], Any]
    inner: dict[str, Any]

    def _lookup_global(self, value: Any) -> Any:
        known = super()._lookup_global(value)
        if type(known) is not types.Function:
            return known
        if known not in self.operators:
            self.operators[known] = _Operator(known, self)
        return self.operators[known]

    def find_matching_getattr_template(self, kind: Any, name: str) -> Any:
        if (kind, name) not in self.attributes:
            self.attributes[kind, name] = super().find_matching_getattr_template(kind, name)
        return self.attributes[kind, name]

    def resolve_function_type(self, function: Any, args: Any, kws: Any) -> Any:
        if isinstance(function, _Operator | types.Dispatcher):
            return function.get_call_type(cast(Any, self), args, kws)
        return super().resolve_function_type(function, args, kws)

    def piece(self, template: Any) -> Any:
        """Return a `template` of an operator that compiles what implements it into the program."""
        if not _is_python(template):
            return template
        own = {"_impl_cache": {}, "_compiled_overloads": {}, "_jit_options": template._jit_options | self.inner}
        return type(template.__name__, (template,), own)


def _is_python(template: Any) -> bool:
    return _OverloadFunctionTemplate in template.__mro__  # all of Numba's classes are asked by `issubclass`


@cache
def _is_declared_for(kind: Any) -> bool:
    return issubclass(kind, types.Number | types.Boolean | types.Array | types.BaseTuple)


class _Operator(types.Function):
    """An operator or function of Numba's that looks up once what it makes of the same types."""

    def __init__(self, known: types.Function, context: Any) -> None:
        self.known, self.context = known, context
        self.made: dict[tuple[types.Type, ...], Any] = {}
        super().__init__(known.templates)

    @property
    def key(self) -> Any:
        """Numba takes types of one key for one."""
        return *super().key, id(self.context)

    def augment(self, other: types.Function) -> Any:
        """Return the type with more declarations, for all programs."""
        return self.known.augment(other)

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Return the signature for `args`."""
        if kws or context is not self.context:
            return super().get_call_type(context, args, kws)
        if args and isinstance(args[0], types.Array):  # whatever the value of an index
            args = tuple(types.unliteral(arg) for arg in args)
        key = tuple(args)
        made = self.made.get(key)
        if made is None:
            made = self.made[key] = self._declared(args) or self._implemented(args)
        return made

    def _declared(self, args: tuple[types.Type, ...]) -> Any:
        """Return what Numba declares of numbers and arrays, None where it implements that in Python.

        Else its implementations for lists, dictionaries and text come first, are made and do not fit.
        """
        if not all(_is_declared_for(type(arg)) for arg in args):
            return None
        plain = tuple(types.unliteral(arg) for arg in args)
        for template in self.templates:
            if not _is_python(template) and not template.prefer_literal:
                declared = template(self.context)
                if signature := declared.apply(plain, {}):
                    self._impl_keys[signature.args] = declared.get_impl_key(signature)
                    return signature
        return None

    def _implemented(self, args: tuple[types.Type, ...]) -> Any:
        """Return what Numba implements in Python, compiled into the program."""
        if self.templates is self.known.templates:
            self.templates = tuple(self.context.piece(template) for template in self.templates)
        return super().get_call_type(self.context, args, {})


register_default(_Operator)(models.OpaqueModel)
