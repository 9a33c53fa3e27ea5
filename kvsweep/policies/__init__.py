"""Restore-or-recompute policies, one module each, and the registry that finds them.

A policy is plain Python over a `Context` of scalars. Dropping a module with ``decide`` and its metadata into
this folder is enough for it to appear in every command, dataset, figure and report.
"""

from kvsweep.policies.context import Allocation, Context
from kvsweep.policies.registry import Policy, PolicySet, load_policies

__all__ = ["Allocation", "Context", "Policy", "PolicySet", "load_policies"]
