"""The slow twin of a cluster of vLLM workers: plain workers behind the plain gateway, instant by instant."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kvsweep.cluster.inputs.config import ClusterConfig, VllmGroup
from kvsweep.cluster.policies.plugins import Plugin
from kvsweep.trace.model import Trace
from tests.cluster.naive_parts import Router
from tests.cluster.vllm.naive import Request, Step, Worker

StepTime = Callable[[list[tuple[int, int]], Sequence[int]], int]
"""Duration of a step [ps] from (tokens, tokens before) of its requests and the captured batch sizes."""
REASONS = ("sequences", "token_budget", "blocks")


class Job(Request):
    """A request of the trace, with what the gateway looks at."""

    def __init__(self, trace: Trace, i: int, page: int) -> None:
        prompt, output = int(trace.input_tokens[i]), int(trace.output_tokens[i])
        super().__init__(i, round(float(trace.arrival[i]) * 1e12), prompt, output, names(trace, i, page))
        self.session, self.n_pages, self.n_full = int(trace.session[i]), -(-prompt // page), prompt // page
        self.at: dict[str, int] = {}
        self.worker = self.began = -1
        self.rejected = False
        self.joined_at = self.left_at = 0
        self.waited = dict.fromkeys((*REASONS, "preempted"), 0)


def names(trace: Trace, i: int, page: int) -> list[Any]:
    """Return the contents of the full blocks of request `i`: named as in the trace, else its own."""
    ids = trace.blocks[trace.offsets[i] : trace.offsets[i + 1]].tolist()
    size, prompt = trace.block_size, int(trace.input_tokens[i])
    whole_request = prompt + int(trace.output_tokens[i])
    reach = whole_request if size and len(ids) > -(-prompt // size) else prompt  # the trace may name answers, too
    found: list[Any] = []
    for block in range(whole_request // page):
        last = ((block + 1) * page - 1) // size
        whole = page <= size or (block + 1) * page // size <= len(ids)
        named = (block + 1) * page <= reach and last < len(ids) and whole
        found.append((ids[last], block) if named else ("own", i, block))
    return found


class Member(Worker):
    """A worker of the cluster: its twin, what it has in flight, and what it counts."""

    def __init__(self, sim: Cluster, number: int, group: VllmGroup, step_time: StepTime) -> None:
        def duration(contents: list[tuple[int, int]]) -> int:
            return step_time(contents, group.graph_buckets or ())

        super().__init__(
            group.n_blocks or 0, sim.page_size, group.token_budget, group.max_sequences, duration, group.reserve_full,
            group.steps_in_flight,
        )  # fmt: skip
        self.sim, self.number, self.pool, self.device = sim, number, (group.n_blocks or 0) - 1, self
        self.caches = group.prefix_cache
        self.in_flight: deque[Step] = deque()
        self.gpu_free = self.busy = self.evictions = self.passed_at = 0
        self.blocked = ""
        self.jobs: list[Job] = []
        self.resident: list[tuple[int, int]] = [(0, 0)]
        if not self.caches:
            self.blocks.name = lambda block, key: None  # type: ignore[method-assign]
        take = self.blocks.take

        def counted() -> int:
            self.evictions += next(iter(self.blocks.free)) in self.blocks.key_of
            return take()

        self.blocks.take = counted  # type: ignore[method-assign]

    @property
    def in_progress(self) -> list[Job]:
        """Requests that were given to it and are not finished."""
        return [job for job in self.jobs if job.finish < 0]

    @property
    def load(self) -> int:
        """Their number."""
        return len(self.in_progress)

    def match(self, job: Job) -> tuple[int, int]:
        """Return leading blocks of the prompt that it could reuse, on device and host."""
        return len(self.blocks.match(job.keys, (job.prompt - 1) // self.block_tokens)), 0

    def end_step(self) -> list[Request]:
        """End the oldest step; return who got a token."""
        step = self.in_flight.popleft()
        self.complete(step)
        self.count()
        return step.samples

    def passes(self) -> None:
        """Schedule and launch what can be."""
        now = self.sim.now
        while len(self.in_flight) < self.max_in_flight:
            for job in self.waiting:
                if job.first_scheduled < 0 and self.blocked:
                    job.waited[self.blocked] += now - max(self.passed_at, job.arrival)
            preempted = {job.index: job.preemptions for job in self.jobs}
            before, waiting = list(self.running), set(self.waiting)
            step = self.schedule(now)
            self.note(step, waiting, before)
            any_preempted = any(job.preemptions > preempted[job.index] for job in self.jobs)
            self.passed_at, self.blocked = now, self.reason(step, any_preempted)
            self.count()
            if not step.scheduled:
                break
            step.start = max(now, self.gpu_free)
            step.end = self.gpu_free = step.start + self.step_time([(n, held) for _, n, held in step.scheduled])
            self.busy += step.end - step.start
            self.in_flight.append(step)

    def note(self, step: Step, waiting: set[Job], running: list[Job]) -> None:
        """Note who was admitted and who was preempted in a pass."""
        for job in waiting - set(self.waiting):
            if job.began < 0:
                job.began = max(self.sim.now, self.gpu_free)
            else:
                job.waited["preempted"] += self.sim.now - job.left_at
        for job in set(running) - set(self.running):
            job.left_at = self.sim.now

    def reason(self, step: Step, preempted: bool) -> str:
        """Return why requests still wait."""
        if not self.waiting:
            return ""
        if preempted:
            return "blocks"
        if len(self.running) >= self.max_sequences:
            return "sequences"
        return "token_budget" if sum(n for _, n, _ in step.scheduled) >= self.token_budget else "blocks"

    def count(self) -> None:
        """Note how many blocks hold something."""
        holding = sum(h > 0 or b in self.blocks.key_of for b, h in enumerate(self.blocks.holders))
        self.resident.append((self.sim.now, holding))


class Cluster:
    """All of a run."""

    def __init__(self, trace: Trace, config: ClusterConfig, step_time: StepTime, plugin: Plugin | None) -> None:
        self.page_size, self.now = config.page_size, 0
        self.workers = [Member(self, i, group, step_time) for i, group in enumerate(config.vllm_workers())]
        self.jobs = [Job(trace, i, config.page_size) for i in range(len(trace))]
        self.draws = np.random.default_rng(config.gateway.seed).integers(0, 2**31, (len(trace), 4)).tolist()
        self.router = Router(config.gateway, self.workers, plugin)
        self.after: dict[int, tuple[Job, int]] = {}
        self.pending = list(self.jobs)
        if config.workload.mode == "closed":
            self.close(trace, config.workload.think_seconds)
        self.delivered: dict[int, int] = {}

    def close(self, trace: Trace, think: float | None) -> None:
        """Let each request of a session wait for the one before it."""
        last: dict[int, Job] = {}
        for job in self.jobs:
            before = last.get(job.session) if job.session >= 0 else None
            if before is not None:
                gap = job.arrival - before.arrival if think is None else round(think * 1e12)
                stated = float(trace.think[job.index])
                self.after[before.index] = (job, gap if np.isnan(stated) else round(stated * 1e12))
                self.pending.remove(job)
            last[job.session] = job

    def over(self, job: Job) -> None:
        """Let the request that follows `job` arrive when its user has thought."""
        if job.index in self.after:
            follower, think = self.after[job.index]
            follower.arrival = self.now + think
            self.pending.append(follower)

    def run(self) -> Cluster:
        """Serve all requests to their ends."""
        while True:
            ends = [worker.in_flight[0].end for worker in self.workers if worker.in_flight]
            times = ends + [job.arrival for job in self.pending]
            if not times:
                return self
            self.now = min(times)
            due: set[int] = set()
            for worker in self.workers:
                if worker.in_flight and worker.in_flight[0].end == self.now:
                    due.add(worker.number)
                    for job in worker.end_step():
                        self.delivered[self.now] = self.delivered.get(self.now, 0) + 1
                        if job.received == 1:
                            job.at["prefill_end"] = self.now
                        if job.finish >= 0:
                            self.over(job)
            while arrivals := [job for job in self.pending if job.arrival == self.now]:
                job = min(arrivals, key=lambda job: job.index)
                self.pending.remove(job)
                self.arrive(job, due)
            for number in sorted(due):
                self.workers[number].passes()

    def arrive(self, job: Job, due: set[int]) -> None:
        """Give a request to a worker, or reject it."""
        room = -(-(job.prompt + job.output) // self.page_size)
        candidates = [worker for worker in self.workers if worker.pool >= room]
        if not candidates:
            job.rejected = True
            self.over(job)
            return
        worker = self.router.choose(job, candidates, self.draws[job.index])
        job.worker = worker.number
        worker.jobs.append(job)
        worker.waiting.append(job)
        if not worker.in_flight:
            due.add(worker.number)
