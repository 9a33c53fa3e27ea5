"""'Measured' runs made by the simulator itself, with one mechanism changed: a planted fault that is to be found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kvsweep.calibrate.runs.measured import MeasuredRun
from kvsweep.calibrate.runs.replay import engine_series
from kvsweep.cluster.inputs.profiles import shipped
from kvsweep.cluster.inputs.step_profile import StepProfile, Table, read_step_profile, step_times
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.simulation.lone_worker import Arrival, Served, content_keys, run
from kvsweep.cluster.vllm.limits import Limits

PROFILE = read_step_profile(shipped()["rtx4090-llama-3.1-8b"])
LIMITS = Limits(n_blocks=1500, token_budget=2048, max_sequences=128)
GRAPHS = (1, 2, 4, *range(8, 257, 8))
TICK = 1.0


@dataclass(frozen=True)
class Workload:
    """Requests: lengths are log-normal, a quarter of the prompts begins alike, arrivals come in bursts."""

    seed: int
    count: int = 240
    prompt: float = 5.8
    output: float = 5.9
    burst: int = 80
    pause: float = 40.0

    def requests(self) -> tuple[list[list[int]], list[int], list[float]]:
        """Return prompts, answer lengths and arrivals."""
        random = np.random.default_rng(self.seed)
        prompts = []
        for i in range(self.count):
            own = random.integers(1000, 9_000, int(random.lognormal(self.prompt, 0.8)) + 20).tolist()
            prompts.append([7] * 320 + own if i % 4 == 0 else own)
        outputs = (random.lognormal(self.output, 0.5, self.count).astype(int) + 10).tolist()
        bursts = self.pause * (np.arange(self.count) // self.burst)
        return prompts, outputs, np.sort(random.uniform(0.0, 2.0, self.count) + bursts).tolist()


PROMPTS: dict[str, Any] = {"prompt": 7.3, "output": 4.0, "burst": 60, "pause": 30.0}
"""Long prompts and short answers: there the tokens of a step limit what is admitted."""


def slower(profile: StepProfile, factor: float) -> StepProfile:
    """Return `profile` with steps that take `factor` of the time."""

    def scaled(part: Table) -> Table:
        return replace(part, seconds=tuple(value * factor for value in part.seconds))

    return replace(
        profile, tokens=scaled(profile.tokens), sequences=scaled(profile.sequences),
        attention=scaled(profile.attention), captured_saving_seconds=profile.captured_saving_seconds * factor,
    )  # fmt: skip


Runner = Callable[[Sequence[Arrival], Limits, StepProfile], Served]


def compiled(requests: Sequence[Arrival], limits: Limits, profile: StepProfile) -> Served:
    """Run as the simulator does."""
    return run(requests, limits, step_times(profile, GRAPHS))


def planted(
    workload: Workload,
    profile: StepProfile = PROFILE,
    runner: Runner = compiled,
    stated: dict[str, int] | None = None,
    **changes: int,
) -> MeasuredRun:
    """Return the run that `profile` and `LIMITS` with `stated` and `changes` make; its meta.json knows no `changes`."""
    prompts, outputs, arrivals = workload.requests()
    known = replace(LIMITS, **(stated or {}))
    limits = replace(known, **changes)
    lengths = [(len(prompt), output) for prompt, output in zip(prompts, outputs, strict=True)]
    keys = content_keys(prompts, lengths, LIMITS.block_tokens)
    requests = [Arrival(at, *length, own) for at, length, own in zip(arrivals, lengths, keys, strict=True)]
    served = runner(requests, limits, profile)
    finish = served.seconds(col.FINISHED)
    tokens = np.array([prompt for prompt, _ in lengths])
    engine = {
        "engine_kwargs": {"max_num_batched_tokens": known.token_budget, "max_num_seqs": known.max_sequences},
        "kv_cache": {"num_gpu_blocks": known.n_blocks, "block_size": known.block_tokens},
        "resolved_config": {"compilation_config": {"cudagraph_capture_sizes": list(GRAPHS)}},
    }
    return MeasuredRun(
        "planted",
        np.array(arrivals),
        tokens,
        np.array(outputs),
        served.seconds(col.FIRST_TOKEN),
        finish,
        prompts=prompts,
        engine=engine,
        series=engine_series(served, limits, tokens, np.arange(TICK, finish.max(), TICK)),
    )
