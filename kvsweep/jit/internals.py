"""What kvsweep takes of Numba beyond its documented interfaces: all of it is here, and none of it is needed.

Numba makes of each function a library of its own: machine code, wrappers to call it from Python and C, and all that it
calls optimised once more. Of a program of three hundred functions that is nine tenths of the work, and nobody calls
the inner ones. Here their code goes into one library, which is optimised and becomes machine code once. A Numba that
lacks one of these pieces compiles for longer, and the same: `kvsweep.jit.programs` does without what fails here.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numba import types
from numba.core import typed_passes as typed
from numba.core import untyped_passes as untyped
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, _LowerResult
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.cpu import CPUTargetOptions


def known_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options` without those of private names that this Numba lacks; programs are only slower for it."""
    return {name: value for name, value in options.items() if name[0] != "_" or hasattr(CPUTargetOptions, name)}


def one_library(name: str, begun: Callable[[int], None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the inner functions and of the entry of program `name`, to share one library.

    `begun` is told how many functions were begun before each. What compiling with these options raises says that this
    Numba cannot, and that it is to be done without.
    """
    whole = _Whole(name, begun)
    inner = {"pipeline_class": type("Pieces", (_Pieces,), {"whole": whole}), "no_cpython_wrapper": True}
    outer = {"pipeline_class": type("Entry", (_Pieces,), {"whole": whole, "is_entry": True})}
    return inner | {"no_cfunc_wrapper": True}, outer | {"no_cfunc_wrapper": True}


class _Whole:
    """What the functions of a program share while it is compiled."""

    def __init__(self, name: str, begun: Callable[[int], None]) -> None:
        self.name, self.begun, self.count = name, begun, 0
        self.resolved: dict[Any, Any] = {}
        self.library: _Library | None = None


class _Library(JITCodeLibrary):
    """All functions of a program, of which only what Python calls can be called from outside."""

    def add_linking_library(self, library: Any) -> None:
        if library is not self:
            super().add_linking_library(library)

    def add_llvm_module(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout
        self._final_module.link_in(module)  # not optimised alone: the whole will be

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and not function.name.startswith("_ZN7cpython"):
                function.linkage = "internal"
        super()._optimize_final_module()


class _Pieces(CompilerBase):
    """Compiles a function into the library; passes for what programs do not contain are left out."""

    whole: _Whole
    is_entry = False

    def __init__(self, typing_context: Any, *rest: Any) -> None:
        super().__init__(typing_context, *rest)
        self.state.typingctx = _remembering(typing_context, self.whole.resolved)

    def define_pipelines(self) -> list[Any]:
        self.whole.begun(self.whole.count)
        self.whole.count += 1
        manager = PassManager(self.whole.name)
        for step in (
            untyped.TranslateByteCode, untyped.FixupArgs, untyped.IRProcessing, untyped.RewriteSemanticConstants,
            untyped.DeadBranchPrune, untyped.GenericRewrites, untyped.ReconstructSSA, typed.NopythonTypeInference,
            typed.PreLowerStripPhis, typed.NopythonRewrites, typed.IRLegalization, _IntoLibrary, typed.NoPythonBackend,
        ):  # fmt: skip
            manager.add_pass(step, step.__name__)
        manager.finalize()
        return [manager]


@register_pass(mutates_CFG=True, analysis_only=False)
class _IntoLibrary(typed.NativeLowering):
    _name = "into_library"

    def run_pass(self, state: Any) -> bool:
        whole, is_entry = state.pipeline.whole, state.pipeline.is_entry
        if whole.library is None:
            whole.library = _Library(state.targetctx.codegen(), whole.name)
            whole.library.enable_object_caching()
        state.library = whole.library
        state.flags.no_compile = not is_entry
        super().run_pass(state)
        if not is_entry:
            made = state["cr"]
            key: Any = [].append  # Numba finds the function by it; it must be of this type, and nobody calls it
            state["cr"] = _LowerResult(made.fndesc, made.call_helper, cfunc=key, env=made.env)
            state.targetctx.insert_user_function(key, made.fndesc, [whole.library])
        return True


def _remembering(context: Any, resolved: dict[Any, Any]) -> Any:
    """Return the typing `context` that looks up once what an operator makes of the same types; a fifth of the time."""

    class Remembering(type(context)):  # type: ignore[misc]
        def resolve_function_type(self, function: Any, args: Any, kws: Any) -> Any:
            if kws or not isinstance(function, types.Function):
                return super().resolve_function_type(function, args, kws)
            key = function, tuple(args)
            found = resolved.get(key)
            if found is None:
                found = resolved[key] = super().resolve_function_type(function, args, kws)
            return found

    twin = Remembering.__new__(Remembering)
    twin.__dict__ = context.__dict__
    return twin
