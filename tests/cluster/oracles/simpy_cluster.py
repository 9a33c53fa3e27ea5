"""The queueing skeleton of a prefill-decode cluster as a SimPy model: arrival, prefill, handoff, decode; no cache.

An independent oracle: SimPy's resources do the queueing, processes the waiting, and nothing of kvsweep is imported.
Times are integers [ps]. Prompts share nothing and prefill pools are ample.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor
from typing import Any

import simpy

Process = Generator[simpy.Event, Any, Any]


@dataclass
class Setup:
    """A cluster, and how long its operations take [ps]."""

    n_prefill: int
    n_decode: int
    page: int  # [token]
    chunk: int  # [token]
    slots: int  # requests of a prefill worker between admission and the end of their handoff
    decode_pages: int
    batch: int
    token: int  # prefill time of a token
    step: int  # fixed part of a prefill step
    copy: int  # isolated copy of a page
    decode_base: int
    decode_sequence: int
    sharing: str  # of the link into a decode worker: "none", "whole units", "exact"

    def pages(self, tokens: int) -> int:
        return ceil(Fraction(tokens, self.page))


@dataclass
class Job:
    """One request and when it passed its stages [ps]."""

    arrival: int
    prompt: int
    output: int
    at: dict[str, int] = field(default_factory=dict)
    done: int = 0  # tokens prefilled
    delivered: int = 0
    link: Any = None  # the way to its decode worker
    begun: Any = None  # event: the first step ended
    sent: Any = None  # event: the last chunk arrived
    waiting: list[Any] | None = field(default_factory=list)  # chunks before there is room for them, None afterwards


class Link:
    """The way into a decode worker: isolated, or all chunks on it at equal shares of their rate.

    What a chunk alone on the link would have received since the link was last idle is the virtual time, in 1/256 ps;
    a chunk ends when it has received its own. The simulator keeps whole units of it, the exact link all of it.
    """

    def __init__(self, env: simpy.Environment, sharing: str) -> None:
        self.env, self.sharing = env, sharing
        self.ends: dict[simpy.Event, Fraction] = {}
        self.virtual, self.since = Fraction(0), 0
        self.changed = env.event()
        if sharing != "none":
            env.process(self.serve())

    def bring_up(self) -> None:
        now = int(self.env.now)
        if self.ends:
            received = Fraction((now - self.since) * 256, len(self.ends))
            self.virtual += received if self.sharing == "exact" else floor(received)
        self.since = now

    def send(self, duration: int) -> simpy.Event:
        if self.sharing == "none":
            return self.env.timeout(duration)
        self.bring_up()
        done = self.env.event()
        self.ends[done] = self.virtual + 256 * duration
        self.changed.succeed()
        self.changed = self.env.event()
        return done

    def serve(self) -> Process:
        while True:
            changed, wait = self.changed, []
            if self.ends:
                first = min(self.ends, key=self.ends.__getitem__)
                due = self.since + ceil((self.ends[first] - self.virtual) * len(self.ends) / 256)
                wait.append(self.env.timeout(max(0, due - int(self.env.now))))
            yield simpy.AnyOf(self.env, [changed, *wait])
            if not changed.triggered:
                self.bring_up()
                del self.ends[first]
                first.succeed()


class Decode:
    """A pool for prompts and whole answers, and a batch that others join between its steps."""

    def __init__(self, env: simpy.Environment, setup: Setup) -> None:
        self.env, self.setup = env, setup
        self.pool = simpy.Container(env, setup.decode_pages, init=setup.decode_pages)
        self.link = Link(env, setup.sharing)
        self.joining = simpy.Store(env)
        env.process(self.run())

    def run(self) -> Process:
        running: list[Job] = []
        while True:
            if not running:
                running.append((yield self.joining.get()))
            while self.joining.items and len(running) < self.setup.batch:
                running.append((yield self.joining.get()))
            yield self.env.timeout(self.setup.decode_base + self.setup.decode_sequence * len(running))
            for job in running:
                job.delivered += 1
                job.at.setdefault("first_token", int(self.env.now))
            for job in [job for job in running if job.delivered == job.output]:
                running.remove(job)
                job.at["finish"] = int(self.env.now)
                self.pool.put(self.setup.pages(job.prompt + job.output))


class Prefill:
    """A FIFO worker whose steps take a budget of tokens, with a queue of chunks to send."""

    def __init__(self, env: simpy.Environment, setup: Setup) -> None:
        self.env, self.setup = env, setup
        self.slots = simpy.Resource(env, setup.slots)
        self.ready = simpy.Store(env)
        self.outgoing = simpy.Store(env)
        env.process(self.run())
        env.process(self.send())

    def run(self) -> Process:
        partial: Job | None = None
        while True:
            left, step = self.setup.chunk, []
            while left and (partial or self.ready.items or not step):
                job = partial or (yield self.ready.get())
                taken, partial = job.prompt - job.done, None
                if self.setup.pages(taken) * self.setup.page > left:
                    taken, partial = left, job
                step.append((job, taken))
                left -= self.setup.pages(taken) * self.setup.page
                job.at.setdefault("prefill_start", int(self.env.now))
            yield self.env.timeout(self.setup.step + self.setup.token * sum(taken for _, taken in step))
            for job, taken in step:
                before = self.setup.pages(job.done)
                job.done += taken
                chunk = job, self.setup.pages(job.done) - before, job.done == job.prompt
                if job.waiting is None:
                    self.outgoing.put(chunk)
                else:
                    job.waiting.append(chunk)
                if job.done == job.prompt:
                    job.at["prefill_end"] = int(self.env.now)
                if not job.begun.triggered:
                    job.begun.succeed()

    def send(self) -> Process:
        while True:
            job, pages, last = yield self.outgoing.get()
            yield job.link.send(self.setup.copy * pages)
            if last:
                job.sent.succeed()


def life(env: simpy.Environment, job: Job, source: Prefill, target: Decode) -> Process:
    """Take one request through the cluster."""
    job.link, job.begun, job.sent = target.link, env.event(), env.event()
    yield env.timeout(job.arrival)
    slot = source.slots.request()
    yield slot
    source.ready.put(job)
    yield job.begun
    yield target.pool.get(target.setup.pages(job.prompt + job.output))
    assert job.waiting is not None
    for chunk in job.waiting:
        source.outgoing.put(chunk)
    job.waiting = None
    yield job.sent
    job.at["handoff_end"] = int(env.now)
    source.slots.release(slot)
    target.joining.put(job)


def simulate(setup: Setup, requests: Sequence[tuple[int, int, int]]) -> list[Job]:
    """Return what becomes of requests (arrival [ps], prompt, output [token]), given to workers in turn."""
    env = simpy.Environment()
    sources = [Prefill(env, setup) for _ in range(setup.n_prefill)]
    targets = [Decode(env, setup) for _ in range(setup.n_decode)]
    jobs = [Job(*request) for request in requests]
    for i, job in enumerate(jobs):
        env.process(life(env, job, sources[i % setup.n_prefill], targets[i % setup.n_decode]))
    env.run()
    return jobs
