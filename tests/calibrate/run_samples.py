"""A measured run that was made up: the prediction of a made-up profile itself, in every format."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from kvsweep.calibrate.fits.compose import compose
from kvsweep.calibrate.kernels.profile import read_kernels
from kvsweep.catalog import load
from kvsweep.cluster.inputs.step_profile import StepProfile, step_times
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.simulation.lone_worker import Arrival, Served, content_keys, run
from kvsweep.cluster.vllm.limits import Limits
from tests.calibrate.kernel_samples import write_profile

GRAPHS = [1, 2, 4, 8]
LIMITS = Limits(n_blocks=60, token_budget=256, max_sequences=4)


def profile(folder: Path) -> StepProfile:
    """Return the step profile of a made-up kernel profile written to `folder`."""
    return compose(read_kernels(write_profile(folder, skew=True)), load().part("models", "llama-3.1-8b", "model"))


def prompts() -> list[list[int]]:
    """Return prompts that share a prefix by threes."""
    random = np.random.default_rng(5)
    return [[i // 3] * 32 + random.integers(10, 99, random.integers(1, 100)).tolist() for i in range(24)]


def serve(given: StepProfile) -> tuple[list[Arrival], Served]:
    """Return requests and what becomes of them."""
    lengths = [(len(tokens), 3 + i % 7) for i, tokens in enumerate(prompts())]
    keys = content_keys(prompts(), lengths, 16)
    requests = [
        Arrival(0.02 * i, prompt, output, own)
        for i, ((prompt, output), own) in enumerate(zip(lengths, keys, strict=True))
    ]
    return requests, run(requests, LIMITS, step_times(given, GRAPHS))


def write_run(folder: Path, requests: list[Arrival], served: Served, shift: float = 0.0) -> tuple[Path, Path]:
    """Write the run as LLMServingSim lays it out, clocks apart, tokens `shift` [s] late; return folder and workload."""
    folder.mkdir(parents=True, exist_ok=True)
    meta = {
        "engine_kwargs": {"max_num_batched_tokens": LIMITS.token_budget, "max_num_seqs": LIMITS.max_sequences},
        "kv_cache": {"num_gpu_blocks": LIMITS.n_blocks, "block_size": 16},
        "resolved_config": {"compilation_config": {"cudagraph_capture_sizes": GRAPHS}},
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    lines = []
    for i, (each, row) in enumerate(zip(requests, served.request, strict=True)):
        first, last = (row[column] * 1e-12 + shift + 500.0 for column in (col.FIRST_TOKEN, col.FINISHED))
        lines.append({
            "request_id": f"bench-{i}", "input_toks": each.prompt_tokens, "output_toks": each.output_tokens,
            "arrival_time": 1e9 + each.arrival, "queued_ts": 500.0 + each.arrival, "first_token_ts": first,
            "last_token_ts": last,
        })  # fmt: skip
    (folder / "requests.jsonl").write_text("\n".join(map(json.dumps, lines)))
    times = np.arange(0.1, served.request[:, col.FINISHED].max() * 1e-12, 0.1)
    with (folder / "timeseries.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["t", "prompt_throughput", "gen_throughput", "running", "waiting", "kv_cache_pct"])
        writer.writerows([at, 0.0, 100.0, 4, 2, 50.0] for at in times.tolist())
    workload = folder.parent / "workload.jsonl"
    workload.write_text("\n".join(json.dumps({"input_tok_ids": tokens}) for tokens in prompts()))
    return folder, workload
