"""Compiling the cores beforehand, by runs of one request."""

from __future__ import annotations

from typing import Any

from kvsweep.catalog import load
from kvsweep.cluster.inputs.profiles import read_any_profile
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.cluster.simulation.cores import CORES
from kvsweep.cluster.simulation.run import finish
from kvsweep.jit.programs import Progress
from kvsweep.trace.build import Builder
from kvsweep.trace.model import Notes

_MODEL, _GPU, _TP = "qwen3-8b", "h100-sxm", 1
_STEPS = "h100-sxm-llama-3.1-8b"
"""Any would do: what is compiled is the same for all."""


def warm(core: str, check: bool = False, progress: Progress | None = None) -> None:
    """Compile `core`, one of `CORES`, and its checker if asked for, where the cache has none; tells `progress`."""
    builder = Builder(Notes())
    builder.add(0.0, (100, 2))
    pools = {"tp": _TP, "device_tokens": 65_536}
    stated: dict[str, Any] = {
        "fidelity": core, "workers": [{"role": "prefill", **pools}, {"role": "decode", **pools}],
    }  # fmt: skip
    if core == "vllm":
        stated = {"workers": [{"role": "vllm", "tp": _TP, "n_blocks": 4096}]}
    profile = read_any_profile(_STEPS) if core == "vllm" else roofline(load(), _MODEL, _GPU, _TP)
    assert core in CORES
    finish(builder.finish(16, "warm"), stated, profile, check=check, compile=True, progress=progress)
