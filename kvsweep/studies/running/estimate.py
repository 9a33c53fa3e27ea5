"""What a study will take, from one of its simulations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from kvsweep.cluster.outcome.dataset import told
from kvsweep.cluster.simulation.run import finish
from kvsweep.errors import InputError, ResultError
from kvsweep.studies.metrics import measure
from kvsweep.studies.running.run import begin
from kvsweep.studies.running.workloads import Workloads
from kvsweep.studies.study import Study


@dataclass(frozen=True, slots=True)
class Estimate:
    """Size and expected cost of a study."""

    simulations: int
    references: int
    refused: int
    axes: dict[str, int]
    requests: int
    seconds_each: float
    threads: int
    seconds: float
    memory_bytes: float

    def lines(self) -> Iterator[str]:
        """Yield the estimate in words."""
        yield f"{self.simulations} simulations: " + " x ".join(f"{name} {n}" for name, n in self.axes.items())
        if self.references:
            yield f"{self.references} more of the oracle, which regret is against"
        if self.refused:
            yield f"{self.refused} of them cannot be: their combination of values is refused"
        yield f"{self.requests} requests in all; the first simulation takes {self.seconds_each:.3g} s"
        yield f"about {self.seconds:.3g} s on {self.threads} threads, {self.memory_bytes / 1e6:.3g} MB at a time"


def estimate(study: Study, threads: int) -> Estimate:
    """Return what `study` will take, judged by its first cell that can be run."""
    workloads = Workloads(study)
    outcome = begin(study, workloads)
    runnable = [cell for cell in (*outcome.cells, *outcome.references.values()) if not cell.refusal]
    requests = sum(workloads.facts(cell.workload).requests for cell in runnable)
    cell = runnable[0]
    assert cell.config is not None and cell.profile is not None
    trace = workloads.trace(cell.workload)
    try:
        finish(trace.shortest(), cell.config, cell.profile, policy_files=study.policy_files, compile=True)
        began = time.process_time()
        run = finish(trace, cell.config, cell.profile, policy_files=study.policy_files, compile=True)
        measure(told(run), study.slos)
        each = time.process_time() - began
    except (InputError, ResultError) as error:
        raise InputError(f"{study.where}: the first simulation fails: {error}") from error
    return Estimate(
        simulations=len(outcome.cells),
        references=len(outcome.references),
        refused=outcome.n_simulations - len(runnable),
        axes={axis.name: len(axis.values) for axis in study.axes},
        requests=requests,
        seconds_each=each,
        threads=threads,
        seconds=each * requests / max(1, len(trace)) / threads,
        memory_bytes=2.0 * threads * run.memory_bytes + 2500.0 * len(outcome.cells),
    )
