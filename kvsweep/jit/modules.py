"""Modules written for Numba: their names, their folders, and its file cache of what they compile to."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numba
from numba import njit
from numba.core.caching import FunctionCache

from kvsweep.cache import cache_directory, write_whole

KERNELS = "kernels"
"""Kind of what is cached: compiled kernels."""
KERNEL_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
VERSIONS = (numba.__version__, sys.implementation.cache_tag)
"""What compiled code is good for: a patch level of Python changes neither its bytecode nor its interfaces."""


def lies_in_cache(key: str) -> bool:
    """Return whether what was compiled under `key` lies in the cache, so that no compilation waits."""
    return any((cache_directory(KERNELS) / key / "__pycache__").glob("*.nbc"))


def module_name(key: str) -> str:
    return f"kvsweep_kernel_{key}"


def written_module(key: str, source: bytes, before: dict[str, Any], after: dict[str, Any]) -> ModuleType:
    """Return a module of `source` under a name and a folder of its own, made by its `key`.

    Numba files a compiled function beside its source and finds it again by module name, so both carry the key:
    a changed dependency is a new key and cannot meet an old kernel, in this process or another.
    """
    name = module_name(key)
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


def compiled_function(module: ModuleType, name: str, options: Mapping[str, Any] = KERNEL_OPTIONS) -> Callable[..., Any]:
    """Return the compiled function `name` of `module`, which holds it from then on."""
    function = vars(module)[name]
    if isinstance(function, FunctionType):
        kernel = vars(module)[name] = njit(**options)(function)
        # What `cache=True` would set; a cache that was filled and is now read-only has no place for Numba's files.
        with contextlib.suppress(RuntimeError):
            kernel._cache = _ForgivingCache(kernel.py_func)  # type: ignore[no-untyped-call]
        return kernel  # type: ignore[no-any-return]
    return function  # type: ignore[no-any-return]
