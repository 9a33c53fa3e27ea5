"""Mooncake JSONL, also as AIPerf, Dynamo and `vllm bench` extend it, and the same names in CSV: lengths, hash_ids.

Source: FAST'25 artefact, kvcache-ai/Mooncake. Blocks are 512 tokens unless the counts of ids say otherwise. Block ids
and pauses are Mooncake's alone, whose times are in ms; GuideLLM writes seconds under the names of its lengths.
"""

from __future__ import annotations

from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import MILLISECONDS, Shape
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.rows import drafted


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace; raises InputError naming line and field."""
    draft = drafted(source, shape)
    is_own = draft.has_ids or draft.has_delays or "created_time" in source.first or "delay_ms" in source.first
    return draft.trace(MILLISECONDS if is_own else shape.clock)
