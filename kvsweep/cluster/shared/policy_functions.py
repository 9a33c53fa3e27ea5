"""The functions of policies that a core asks, handed to it as C functions, or as Python ones to its plain source."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Decide = Callable[..., float]
"""The decision of a retrieval policy, from the fields of `policies.Context` one by one: reassigned hit blocks."""
Score = Callable[..., float]
"""What a policy from a file answers, from the fields of its context one by one (`plugins`)."""


class PolicyFunctions(NamedTuple):
    """One function of each kind; those of built-in policies are never called."""

    decide: Decide
    cost: Score
    key: Score
    ttl: Score
