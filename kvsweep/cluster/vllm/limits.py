"""What a vLLM worker is configured with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Configuration of a worker, in the engine's terms; `n_blocks` is what the engine reports, null block included."""

    n_blocks: int
    block_tokens: int = 16
    token_budget: int = 2048
    max_sequences: int = 256
    reserve_full: bool = True
    steps_in_flight: int = 2
    prefix_cache: bool = True
    watermark_blocks: int = 0
