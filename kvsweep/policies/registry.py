"""Finds policies (built in, files, entry points), checks their metadata and keeps broken ones from harming others."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import math
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from kvsweep.errors import PolicyError, shown, unknown_name
from kvsweep.policies.context import SIDES, Context
from kvsweep.signals import ENDS

ENTRY_POINT_GROUP = "kvsweep.policies"

RETRIEVAL = "retrieval"
KINDS = (RETRIEVAL, "gateway", "eviction", "retention")
"""What a module's ``kind`` may say; the first, for which it may be left out, is what this registry holds."""

RESERVED_NAMES = frozenset({*Context._fields, "placement", "speedups"})
"""Names no policy can have: a result row holds them beside the policies."""

_HELPER_MODULES = {"context", "registry", "outcome"}
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
_MAX_SOURCE = 1 << 20  # bytes of a policy file
_MAX_MODES = 100  # mode codes of all policies together are stored as int8


@dataclass(frozen=True)
class Policy:
    """A restore-or-recompute policy: its decision and what describes it to people and files."""

    name: str
    label: str
    description: str
    color: str
    order: float
    recomputes: str
    modes: tuple[str, ...]
    decide: Callable[[Context], tuple[float, str | int]]
    origin: str
    models: str = "any"
    """``positional`` for a policy that is evaluated unasked only where the place of a token matters, else ``any``."""

    def choose(self, ctx: Context) -> tuple[float, str]:
        """Return (reassigned hit blocks [block] within 0..hits, mode label) for one request.

        Raises PolicyError when the policy fails or answers with something else.
        """
        try:
            answer = self.decide(ctx)
            reassigned, mode = answer
            reassigned = float(reassigned)
            label = self._label_of(mode)
        except ENDS:
            raise
        except BaseException as error:
            raise PolicyError(f"policy {self.name} ({self.origin}): decide failed: {reason_of(error)}") from error
        if math.isnan(reassigned):
            raise PolicyError(f"policy {self.name} ({self.origin}): decide returned NaN blocks; allowed: a number")
        if label is None:
            raise PolicyError(
                f"policy {self.name} ({self.origin}): decide returned mode {shown(mode)}; "
                f"allowed: {', '.join(self.modes)} or an index of these"
            )
        return ctx.clamp(reassigned), label

    def _label_of(self, mode: Any) -> str | None:
        """Return the label `mode` is or is the index of; None for anything else, as the kernels judge it."""
        if isinstance(mode, str):
            return mode if mode in self.modes else None
        index = int(mode)
        return self.modes[index] if index == mode and 0 <= index < len(self.modes) else None


class PolicySet(Mapping[str, Policy]):
    """Policies by id in display order, and one line for each that had to be left out."""

    def __init__(self, policies: Iterable[Policy], problems: Iterable[str] = ()) -> None:
        ranked = sorted(policies, key=lambda policy: (policy.order, policy.name))
        self._policies = {policy.name: policy for policy in ranked}
        self.problems = tuple(problems)

    def __getitem__(self, name: str) -> Policy:
        return self._policies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)

    def select(self, names: Iterable[str], what: str) -> PolicySet:
        """Return only the policies called `names`, by id or by label; an unknown one is an error naming `what`."""
        labels = {policy.label: name for name, policy in self._policies.items()}
        wanted = [name if name in self._policies else labels.get(name, name) for name in names]
        for name in wanted:
            if name not in self._policies:
                raise unknown_name(what, name, self._policies)
        return PolicySet((self._policies[name] for name in dict.fromkeys(wanted)), self.problems)

    def unasked(self, positional: bool) -> PolicySet:
        """Return those evaluated where nobody chooses: of the linear model alone, without `positional` ones."""
        kept = (policy for policy in self._policies.values() if positional or policy.models == "any")
        return PolicySet(kept, self.problems)

    def without(self, name: str, problem: str) -> PolicySet:
        """Return the policies but `name`, which is left out for `problem`; raises PolicyError when none is left."""
        rest = [policy for policy in self._policies.values() if policy.name != name]
        problems = (*self.problems, f"left out: {problem}")
        if not rest:
            raise PolicyError(f"no policy can be evaluated: {'; '.join(problems)}")
        return PolicySet(rest, problems)


def load_policies(files: Iterable[str | Path] = ()) -> PolicySet:
    """Return every policy: built in, then of `files`, then of installed packages.

    A policy that cannot be used is left out and described in `PolicySet.problems`; files are read anew at each
    call, so an edit is always seen.
    """
    found: dict[str, Policy] = {}
    problems: list[str] = []
    for origin, load in _sources(files):
        try:
            with contextlib.redirect_stdout(sys.stderr):  # stdout is for results, also where a policy prints
                policy = _from_module(load(), origin)
            if policy.name in found:
                raise PolicyError(f"name {policy.name!r} is already taken by {found[policy.name].origin}")
            taken = sum(len(other.modes) for other in found.values())
            if taken + len(policy.modes) > _MAX_MODES:
                raise PolicyError(f"more than {_MAX_MODES} decision modes over all policies")
        except ENDS:
            raise
        except BaseException as error:  # foreign code: whatever it raises stays its own problem
            problems.append(f"{origin}: left out: {reason_of(error)}")
        else:
            found[policy.name] = policy
    return PolicySet(found.values(), problems)


def _sources(files: Iterable[str | Path]) -> Iterator[tuple[str, Callable[[], ModuleType]]]:
    package = importlib.import_module("kvsweep.policies")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in _HELPER_MODULES:
            name = f"kvsweep.policies.{module.name}"
            yield f"built in {module.name}", partial(importlib.import_module, name)
    yield from foreign_modules(files)


def foreign_modules(files: Iterable[str | Path]) -> Iterator[tuple[str, Callable[[], ModuleType]]]:
    """Yield what each policy module from outside is called and how to load it, of `files` and installed packages."""
    for file in files:
        path = Path(file)
        yield f"policy file {path}", partial(_load_file, path)
    for point in installed():
        yield f"entry point {point.name} = {point.value}", partial(_load_entry_point, point)


@cache
def installed() -> tuple[EntryPoint, ...]:
    """Return the policies of installed packages, which are looked for once: that takes longer than a short run."""
    return tuple(sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name))


def _load_entry_point(point: EntryPoint) -> ModuleType:
    module = point.load()
    if not isinstance(module, ModuleType):
        raise PolicyError(f"{point.value} is not a module with decide and its metadata")
    return module


def _load_file(path: Path) -> ModuleType:
    with path.open("rb") as file:
        source = file.read(_MAX_SOURCE + 1)
    if len(source) > _MAX_SOURCE:
        raise PolicyError(f"longer than allowed: {_MAX_SOURCE} bytes")
    # The name depends on place and content only: kernels cached by another process find the module under it.
    digest = hashlib.sha256(str(path.resolve()).encode() + b"\0" + source).hexdigest()[:16]
    name = f"kvsweep_policy_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    code = compile(source, str(path), "exec")
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)  # the user named this file as code to run
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _from_module(module: ModuleType, origin: str) -> Policy:
    """Return the policy a module describes; raises PolicyError naming the field and what is allowed."""

    def field(name: str, allowed: str, valid: Callable[[Any], bool]) -> Any:
        if not hasattr(module, name):
            raise PolicyError(f"{name} is missing; allowed: {allowed}")
        value = getattr(module, name)
        if not valid(value):
            raise PolicyError(f"{name} = {shown(value)}; allowed: {allowed}")
        return value

    def optional(name: str, default: str, allowed: tuple[str, ...]) -> str:
        return (
            str(field(name, " | ".join(allowed), lambda value: value in allowed)) if hasattr(module, name) else default
        )

    def text(value: Any) -> bool:
        return isinstance(value, str) and bool(value.strip()) and value.isprintable()

    def labels(value: Any) -> bool:
        return (
            isinstance(value, tuple | list)
            and 0 < len(value) <= _MAX_MODES
            and len(set(value)) == len(value)
            and all(isinstance(mode, str) and IDENTIFIER.fullmatch(mode) for mode in value)
        )

    def identifies(value: Any) -> bool:
        return isinstance(value, str) and bool(IDENTIFIER.fullmatch(value)) and value not in RESERVED_NAMES

    kind = getattr(module, "kind", RETRIEVAL)
    if kind != RETRIEVAL:
        known = kind in KINDS
        raise PolicyError(
            f"a policy of kind {kind} is for `kvsweep cluster run`"
            if known
            else f"kind = {shown(kind)}; allowed: {', '.join(KINDS)}"
        )
    identifier = "a name of letters, digits, _ . - (64 at most)"
    return Policy(
        name=field("name", f"{identifier}, but no field of ctx, placement or speedups", identifies),
        label=field("label", "a line of text", text),
        description=field("description", "a line of text", text),
        color=field("color", "#rrggbb", lambda value: isinstance(value, str) and bool(_COLOR.fullmatch(value))),
        order=float(field("order", "a finite number", _is_finite_number)),
        recomputes=field("recomputes", " | ".join(SIDES), lambda value: value in SIDES),
        modes=tuple(field("modes", f"a tuple of distinct labels, each {identifier}", labels)),
        decide=field("decide", "a function decide(ctx), neither generator nor coroutine", takes_one_argument),
        origin=origin,
        models=optional("models", "any", ("any", "positional")),
    )


def takes_one_argument(value: Any) -> bool:
    """Return whether `value` is a plain function of one argument."""
    plain = not (inspect.iscoroutinefunction(value) or inspect.isgeneratorfunction(value))
    return plain and inspect.isfunction(value) and len(inspect.signature(value).parameters) == 1


def _is_finite_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def reason_of(error: BaseException) -> str:
    """Return what `error` says on one line; foreign code may raise anything."""
    if isinstance(error, PolicyError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"SyntaxError in line {error.lineno}: {error.msg}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
