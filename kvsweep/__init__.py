"""kvsweep: sweep and simulate LLM KV-cache hierarchies."""

__version__ = "0.1.0"
