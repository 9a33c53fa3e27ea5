"""The same deployment takes the same time to recompute and to restore, whichever command says so."""

import numpy as np
import pytest

import kvsweep
from kvsweep.catalog.load import load
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.studies.shipped.pictures import sources

DEPLOYMENTS = (
    ("llama-3.1-8b", "h100-sxm", 1), ("qwen3-8b", "h800-sxm", 8), ("gpt-oss-120b", "h200-sxm", 1),
    ("qwen3-30b-a3b", "l20", 2), ("deepseek-v3", "b200-sxm", 8), ("llama-3.1-8b", "H100", 1),
)  # fmt: skip
TOKENS = 32_768


@pytest.mark.parametrize(("model", "gpu", "count"), DEPLOYMENTS)
def test_simulate_sweep_and_a_roofline_profile_agree(model: str, gpu: str, count: int) -> None:
    parts = {"model": model, "gpu": gpu, "gpu_count": count, "prompt_tokens": TOKENS, "p95_seconds": 10}
    [row] = kvsweep.simulate(**parts, request_rate=0.001)["results"]
    times = row["recompute_all_seconds"], row["restore_all_seconds"]["dram"]
    chosen = {"policies": ["all_compute", "default_policy"], "placement": "manual:0,1,0", "hit_ratio": 1, "dtype": "f8"}
    grid = kvsweep.sweep(**parts, **chosen, request_rate=0.001)
    assert grid["total_time"].sel(policy=chosen["policies"]).values == pytest.approx(times, rel=1e-9)
    profile = roofline(load(), model, gpu, count)
    prefill, path = profile.prefill, profile.h2d
    computed = prefill.token_seconds * TOKENS + prefill.token_pair_seconds * TOKENS**2 / 2
    moved = path.setup_seconds + TOKENS * profile.kv_bytes_per_token / path.bytes_per_s
    assert (computed, moved) == pytest.approx(times, rel=1e-9)


def test_the_study_of_sources_computes_as_simulate_does() -> None:
    """The clock of the cluster counts femtoseconds, a token's cost for another one is rounded to those."""
    lengths, parts = (TOKENS, 2 * TOKENS), {"model": "qwen3-8b", "gpu": "h100-sxm", "gpu_count": 2}
    catalog = load()
    behind = catalog.disks["micron-9550-pro-7.68t"], catalog.links["rdma-400g"]
    found = sources(roofline(catalog, "qwen3-8b", "h100-sxm", 2), *behind, lengths=lengths)
    computing = (found["ttft"] - found["handoff"]).sel(source="recompute").values
    rows = kvsweep.simulate(**parts, total_blocks=[n // 16 for n in lengths], p95_seconds=10)["results"]
    assert np.diff(computing) == pytest.approx(np.diff([row["recompute_all_seconds"] for row in rows]), rel=2e-6)
