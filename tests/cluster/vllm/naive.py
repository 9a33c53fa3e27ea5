"""The slow twin of the vLLM worker: the rules of kvsweep/cluster/vllm/README.md over plain objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.cluster.vllm.naive_blocks import Blocks

StepTime = Callable[[list[tuple[int, int]]], int]
"""Duration of a step [ps] from the (scheduled, computed before) tokens of its requests."""


@dataclass(eq=False)
class Request:
    """A request: waiting, running or finished; `computed` counts tokens scheduled, in flight or done."""

    index: int
    arrival: int
    prompt: int
    output: int
    keys: list[int]
    computed: int = 0
    received: int = 0
    in_flight: int = 0
    blocks: list[int] = field(default_factory=list)
    first_scheduled: int = -1
    first_token: int = -1
    finish: int = -1
    preemptions: int = 0
    hit_tokens: int = -1

    @property
    def known(self) -> int:
        """Tokens whose values the scheduler knows."""
        return self.prompt + self.received


@dataclass(eq=False)
class Step:
    """A step in flight: who runs how many tokens, who samples, and when it ends."""

    scheduled: list[tuple[Request, int, int]]
    samples: list[Request]
    start: int = 0
    end: int = 0


@dataclass
class Worker:
    """One vLLM v1 worker with asynchronous scheduling."""

    n_blocks: int
    block_tokens: int
    token_budget: int
    max_sequences: int
    step_time: StepTime
    reserve_full: bool = True
    max_in_flight: int = 2

    def __post_init__(self) -> None:
        self.blocks = Blocks(self.n_blocks - 1)
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.log: list[tuple[int, int, list[tuple[int, int]]]] = []
        self.states: list[tuple[int, int, int, int]] = []

    def run(self, requests: Sequence[Request]) -> None:
        """Serve `requests`, in order of arrival, to their ends."""
        arrivals = deque(requests)
        flight: deque[Step] = deque()
        now = gpu_free = 0
        while arrivals or self.running or self.waiting or flight:
            while arrivals and arrivals[0].arrival <= now:
                self.waiting.append(arrivals.popleft())
            step = self.schedule(now)
            if step.scheduled:
                step.start = max(now, gpu_free)
                contents = [(n, before) for _, n, before in step.scheduled]
                step.end = gpu_free = step.start + self.step_time(contents)
                self.log.append((step.start, step.end, contents))
                self.states.append((step.start, len(self.running), len(self.waiting), len(self.blocks.free)))
                flight.append(step)
                if len(flight) < self.max_in_flight and flight[0].end > now:
                    continue
            if flight:
                done = flight.popleft()
                now = max(now, done.end)
                self.complete(done)
            elif arrivals:
                now = max(now, arrivals[0].arrival)
            elif self.waiting:
                raise RuntimeError("a request that can never be admitted")

    def schedule(self, now: int) -> Step:
        """Return the next step: running requests first, then waiting ones."""
        step = Step([], [])
        budget = self.token_budget
        preempted = False
        position = 0
        while position < len(self.running) and budget > 0:
            request = self.running[position]
            tokens = min(request.known + request.in_flight - request.computed, budget)
            if request.in_flight and request.received + request.in_flight >= request.output:
                tokens = 0
            if tokens <= 0:
                position += 1
                continue
            while not self.grow(request, tokens):
                victim = self.running.pop()
                preempted = True
                self.preempt(victim)
                if victim is request:
                    break
            else:
                self.dispatch(step, request, tokens)
                budget -= tokens
                position += 1
                continue
            break
        while not preempted and self.waiting and budget > 0 and len(self.running) < self.max_sequences:
            request = self.waiting[0]
            hits = self.blocks.match(request.keys, (request.known - 1) // self.block_tokens)
            hit_tokens = len(hits) * self.block_tokens
            tokens = min(request.known - hit_tokens, budget)
            room = request.known if self.reserve_full else hit_tokens + tokens
            fresh = -(-room // self.block_tokens) - len(hits)
            if fresh + self.blocks.idle(hits) > len(self.blocks.free):
                break
            self.waiting.popleft()
            self.blocks.hold(hits)
            request.blocks = list(hits)
            request.computed = hit_tokens
            self.grow(request, tokens)
            if request.first_scheduled < 0:
                request.first_scheduled = now
                request.hit_tokens = hit_tokens
            self.running.append(request)
            self.dispatch(step, request, tokens)
            budget -= tokens
        return step

    def grow(self, request: Request, tokens: int) -> bool:
        """Give `request` the blocks for `tokens` more, and name the full ones; whether there were enough."""
        need = -(-(request.computed + tokens) // self.block_tokens) - len(request.blocks)
        if need > len(self.blocks.free):
            return False
        for _ in range(need):
            request.blocks.append(self.blocks.take())
        full = min(request.computed + tokens, request.known) // self.block_tokens
        for index in range(full):
            self.blocks.name(request.blocks[index], request.keys[index])
        return True

    def preempt(self, victim: Request) -> None:
        """Take all blocks from `victim`, which starts anew from the front of the queue."""
        self.blocks.release(victim.blocks)
        victim.blocks = []
        victim.computed = 0
        victim.preemptions += 1
        self.waiting.appendleft(victim)

    def dispatch(self, step: Step, request: Request, tokens: int) -> None:
        """Put `tokens` of `request` into `step`; the last known token makes it sample."""
        step.scheduled.append((request, tokens, request.computed))
        request.computed += tokens
        if request.computed == request.known + request.in_flight:
            request.in_flight += 1
            step.samples.append(request)

    def complete(self, step: Step) -> None:
        """Deliver the tokens of `step`, and free who is done."""
        for request in step.samples:
            request.in_flight -= 1
            request.received += 1
            if request.first_token < 0:
                request.first_token = step.end
            if request.received == request.output:
                request.finish = step.end
                if request in self.running:
                    self.running.remove(request)
                else:
                    self.waiting.remove(request)
                self.blocks.release(request.blocks)
                request.blocks = []
