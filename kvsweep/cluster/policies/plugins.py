"""Gateway, eviction and retention policies of users: what they see, and how their files are found and checked.

A module with ``kind = "gateway"``, a ``name`` and ``cost(ctx)`` chooses the worker of least cost, one with
``kind = "eviction"`` and ``key(ctx)`` evicts the page of least key, one with ``kind = "retention"`` and ``ttl(ctx)``
says for how many seconds an idle page stays. All see scalars alone, all of them float64, so that they can be compiled;
rules in ``paper/README.md`` §6 and §11.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from kvsweep.cluster.policies import eviction, gateway, retention
from kvsweep.errors import PolicyError, unknown_name
from kvsweep.policies.registry import IDENTIFIER, KINDS, RETRIEVAL, foreign_modules, reason_of, takes_one_argument
from kvsweep.signals import ENDS


class GatewayContext(NamedTuple):
    """One candidate for one request, at the time of its arrival."""

    side: float
    """0 for prefill, 1 for decode workers."""
    worker: float
    """Number of the candidate within its side, from 0."""
    n_workers: float
    """Workers of this side, candidates or not."""
    pool_pages: float
    """Size of its device pool [page]."""
    load_requests: float
    """Requests in progress there: routed to it and not handed off (prefill), or not finished (decode)."""
    load_pages: float
    """Pages of their prompts [page]."""
    prefill_pages: float
    """Pages of the prompts routed to it whose last prefill step has not ended [page]; 0 for decode."""
    device_pages: float
    """Leading pages of the prompt that it could reuse on its device [page]; 0 for decode."""
    host_pages: float
    """Pages after these that it could reuse on its host [page]; 0 for decode."""
    l3_pages: float
    """Pages after these that it could reuse from L3 [page]; 0 for decode."""
    prompt_tokens: float
    """Length of the prompt [token]."""
    prompt_pages: float
    """Pages of the prompt, the last one maybe partly filled [page]."""
    page_size: float
    """Tokens of a page [token]."""
    session: float
    """Number of the request's session, -1 for none."""
    draw: float
    """Random number of the request and side, the same for all candidates, 0 <= draw < 1."""
    seconds: float
    """Time of the arrival [s]."""


class IdleContext(NamedTuple):
    """A segment (a run of pages of the same requests) at one worker that nobody uses, in one tier.

    An eviction policy is asked for those that could give their last page, a retention policy for those that were
    idle at a check for the first time since their last use.
    """

    tier: float
    """0 for the device, 1 for the host."""
    segment_pages: float
    """Pages of the segment [page]."""
    resident_pages: float
    """Those of them that are resident in this tier [page]."""
    position_pages: float
    """Pages of the prompt before the segment [page]."""
    uses: float
    """Admissions at this worker so far that contained it."""
    released_seconds: float
    """When it became idle [s]."""
    born_seconds: float
    """When its first page became visible in this tier [s]."""
    compute_seconds: float
    """Time of one prefill step that computes the whole segment at its position [s]."""
    page_size: float
    """Tokens of a page [token]."""
    seconds: float
    """Time now [s]."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A gateway, eviction or retention policy from outside."""

    kind: str
    name: str
    decide: Callable[[Any], float]
    origin: str

    @property
    def context(self) -> type[GatewayContext] | type[IdleContext]:
        """Return what its function takes."""
        return _CONTEXTS[self.kind]

    def ask(self, *fields: float) -> float:
        """Return the answer for a context of these fields; raises PolicyError where the policy fails."""
        try:
            return float(self.decide(self.context(*fields)))
        except ENDS:
            raise
        except BaseException as error:
            raise PolicyError(f"{self}: {FUNCTIONS[self.kind]} failed: {reason_of(error)}") from error

    def __str__(self) -> str:
        """Return how messages call it."""
        return f"{self.kind} policy {self.name} ({self.origin})"


FUNCTIONS = {"gateway": "cost", "eviction": "key", "retention": "ttl"}
"""The function of each kind."""
_CONTEXTS: dict[str, type[GatewayContext] | type[IdleContext]] = {
    "gateway": GatewayContext,
    "eviction": IdleContext,
    "retention": IdleContext,
}
BUILT_IN = {"gateway": gateway.POLICIES, "eviction": eviction.POLICIES, "retention": retention.POLICIES}


class Plugins(NamedTuple):
    """What a cluster file chose from outside; None for policies that are built in."""

    gateway: Plugin | None = None
    eviction: Plugin | None = None
    retention: Plugin | None = None


def select_plugin(kind: str, name: str, files: Iterable[str | Path]) -> Plugin | None:
    """Return the policy of `kind` called `name`, None for one that is built in.

    Raises InputError for an unknown one, naming those there are, and PolicyError where a file is the reason.
    """
    if name in BUILT_IN[kind]:
        return None
    found, problems = _load(kind, files)
    if name in found:
        return found[name]
    if problems:
        raise PolicyError(f"{kind}: policy: no {name!r}: {'; '.join(problems)}")
    raise unknown_name(f"{kind}: policy", name, (*BUILT_IN[kind], *found))


def _load(kind: str, files: Iterable[str | Path]) -> tuple[dict[str, Plugin], list[str]]:
    """Return the policies of `kind` by name, and one line for each module that had to be left out."""
    found: dict[str, Plugin] = {}
    problems: list[str] = []
    for origin, load in foreign_modules(files):
        try:
            with contextlib.redirect_stdout(sys.stderr):  # stdout is for results, also where a policy prints
                module = load()
            if getattr(module, "kind", RETRIEVAL) not in KINDS:
                raise PolicyError(f"kind = {module.kind!r}; allowed: {', '.join(KINDS)}")
            if getattr(module, "kind", RETRIEVAL) != kind:
                continue
            plugin = _from_module(module, kind, origin)
            if plugin.name in found or plugin.name in BUILT_IN[kind]:
                taken = found[plugin.name].origin if plugin.name in found else "a built-in policy"
                raise PolicyError(f"name {plugin.name!r} is already taken by {taken}")
        except ENDS:
            raise
        except BaseException as error:  # foreign code: whatever it raises stays its own problem
            problems.append(f"{origin}: left out: {reason_of(error)}")
        else:
            found[plugin.name] = plugin
    return found, problems


def _from_module(module: ModuleType, kind: str, origin: str) -> Plugin:
    name, function = getattr(module, "name", None), getattr(module, FUNCTIONS[kind], None)
    if not isinstance(name, str) or not IDENTIFIER.fullmatch(name):
        raise PolicyError(f"name = {name!r}; allowed: a name of letters, digits, _ . - (64 at most)")
    if not callable(function) or not takes_one_argument(function):
        raise PolicyError(f"{FUNCTIONS[kind]} is missing or not plain; allowed: a function {FUNCTIONS[kind]}(ctx)")
    return Plugin(kind, name, function, origin)
