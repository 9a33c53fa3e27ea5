"""What a step of decode reads from HBM: every active weight once, and the KV of all tokens before."""

from __future__ import annotations

from kvsweep.catalog.models import kv_bytes_per_token
from kvsweep.catalog.specs import Model
from kvsweep.costs.memory import bytes_per_weight
from kvsweep.errors import InputError


def weight_bytes_read(model: Model) -> float:
    """Return the bytes of weights [byte] that a step reads, those a token makes active; batches of experts read more.

    Raises InputError for a model without weights in the catalog.
    """
    if model.weights is None:
        raise InputError(f"model {model.key}: no weights in the catalog; what a step reads is unknown")
    return model.weights.active * bytes_per_weight(model)


def context_bytes(model: Model) -> float:
    """Return the bytes [byte] that a step reads for each token of context."""
    if model.shape is None:
        raise InputError(f"model {model.key}: no shape in the catalog; what a step reads is unknown")
    return kv_bytes_per_token(model.shape)
