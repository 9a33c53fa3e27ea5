"""What prefill and colocated workers share in the slow twin of the engines' rules: copies, and the round (§4)."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from kvsweep.policies.context import SIDES, Context
from tests.cluster.engine.naive_l3 import Prefetch, Reader, Writer
from tests.cluster.engine.naive_tree import Copy, Lock, PageSet, Tree, common

D2H, STEP = 5, 6
"""Orders of the events."""
PS = 1e12
CLIP = 4096


class Batch:
    """The requests of a step, each with the positions it executes."""

    def __init__(self) -> None:
        self.members: list[tuple[Any, list[int]]] = []
        self.loaded = 0
        self.locks: list[Lock] = []  # on the host, until the end of the step
        self.firsts: list[Any] = []  # requests whose first step this is


class TreeWorker:
    """A worker with a tree."""

    role: str

    def __init__(self, sim: Any, number: int, group: Any) -> None:
        self.sim, self.number, self.group, self.rules = sim, number, group, sim.rules
        page = sim.page_size
        self.tree = Tree((group.device_tokens // page, group.host_tokens // page), page, sim.rules)
        self.tree.start_copy = self.start_copy
        self.pool_tokens = self.tree.device_pool * page
        self.copies: deque[Copy] = deque()  # those that run or wait, and those not noticed
        self.copying = False
        self.reader, self.writer = Reader(self), Writer(self)
        self.waiting: list[Any] = []
        self.partial: Any = None
        self.load_locks: list[Lock] = []
        self.arrivals: list[Any] = []
        self.busy = self.full = False
        self.ended = "other"
        self.stall = 0
        self.in_progress: list[Any] = []  # routed here, and not through
        self.computed: list[tuple[int, int]] = []
        self.step: Any = None  # the step that ended, until the loop has seen it
        self.routed = PageSet(sim.rules.tree_tokens // page)
        self.h2d_bytes = self.d2h_bytes = 0

    @property
    def load(self) -> int:
        return len(self.in_progress)

    def match(self, request: Any) -> tuple[int, int]:
        return self.tree.look(request.chain[: request.cap])

    def arrive(self, request: Any) -> None:
        self.arrivals.append(request)
        self.in_progress.append(request)
        if self.sim.l3 is not None:
            self.reader.start(request)

    # -- copies to the host and their acks

    def start_copy(self, copy: Copy) -> None:
        self.copies.append(copy)
        self.next_copy()

    def next_copy(self) -> None:
        if self.copying:
            return
        copy = next((copy for copy in self.copies if not copy.ended), None)
        if copy is not None:
            self.copying = True
            self.d2h_bytes += len(copy.pages) * self.sim.page_bytes

            def end() -> None:
                copy.ended, self.copying = True, False
                self.next_copy()

            self.sim.after(self.sim.copy_time("d2h", len(copy.pages)), D2H, self, end)

    def poll_acks(self) -> None:
        while self.copies and self.copies[0].ended:
            copy = self.copies.popleft()
            self.tree.unlock(copy.lock)
            if self.sim.l3 is not None:
                self.writer.start(copy)
        for lock in self.load_locks:
            self.tree.unlock(lock)
        self.load_locks = []

    def evict(self, tokens: int) -> None:
        copied = self.tree.evict(tokens)
        if copied:
            self.stall += self.sim.copy_time("d2h", copied)
            self.d2h_bytes += copied * self.sim.page_bytes

    # -- prefetches

    def prefetches(self) -> list[Prefetch]:
        return [request.prefetch for request in self.arrivals if request.prefetch is not None]

    def timer(self) -> int | None:
        """Return when an idle worker looks again at the prefetches that requests wait for (§9)."""
        if self.busy or self.sim.l3 is None or self.rules.l3.stop != "timeout":
            return None
        waiting = [request.prefetch for request in self.waiting if request.prefetch is not None]
        open_ones = [prefetch for prefetch in waiting if not prefetch.may_close(self.sim.now)]
        return min((prefetch.deadline() for prefetch in open_ones), default=None)

    def timer_due(self, now: int) -> bool:
        """Return whether its timer goes off now; what it waits for may be closed from now on, so before the clock."""
        waiting = [r.prefetch for r in self.waiting if r.prefetch is not None]
        stops = self.sim.l3 is not None and self.rules.l3.stop == "timeout"
        return stops and not self.busy and any(not p.done and p.deadline() == now for p in waiting)

    # -- the round (§4)

    def free_slots(self) -> int:
        raise NotImplementedError

    def clip(self, request: Any) -> int:
        """Return the answer tokens room is kept for (`Mc` of §4)."""
        raise NotImplementedError

    def promised(self) -> float:
        """Return the `off` a round begins with."""
        return 0

    def round(self) -> Batch | None:
        if (not self.waiting or self.full) and self.partial is None:
            return None
        self.poll_acks()
        batch = Batch()
        self.budget, self.slots = Budget(self), self.free_slots()
        self.ended = self.fill(batch)
        if not batch.members:
            assert batch.loaded == 0 and self.stall == 0
            return None
        page = self.sim.page_size
        asked = sum(len(taken) + page for _, taken in batch.members)
        if self.tree.free * page < asked:
            self.evict(asked)
        for request, taken in batch.members:
            self.tree.take(request, self.sim.pages(len(taken)))
        return batch

    def fill(self, batch: Batch) -> str:
        """Choose who takes part; return what ended the round."""
        if self.partial is not None:
            taken = self.partial_takes()
            if taken <= 0:
                return "capacity"
            request = self.partial
            self.take(batch, request, taken)
            if not request.todo:
                self.partial = None
        for request in self.candidates():
            if self.budget.spent():
                return "other"
            if len(batch.members) >= self.slots:
                return "slots"
            if self.prefetch_done(request) and (stopped := self.admit(batch, request)):
                return stopped
        return "other"

    def prefetch_done(self, request: Any) -> bool:
        """Close the prefetch of `request`, if it has one and it may be."""
        if request.prefetch is None:
            return True
        if not request.prefetch.may_close(self.sim.now):
            return False
        request.prefetch.close()
        return True

    def partial_takes(self) -> int:
        most = min(self.budget.chunk, math.floor(self.budget.total()))
        left, page = len(self.partial.todo), self.sim.page_size
        return left if left <= most else most // page * page

    def take(self, batch: Batch, request: Any, n: int) -> None:
        assert 0 < n <= len(request.todo)
        batch.members.append((request, request.todo[:n]))
        request.todo = request.todo[n:]
        charge = self.sim.pages(n) * self.sim.page_size
        self.budget.input -= charge
        self.budget.chunk -= charge
        self.budget.off += charge
        if not request.todo:
            self.budget.off += self.clip(request)

    def admit(self, batch: Batch, request: Any) -> str | None:
        """Take `request` into the batch, or return why the round ends here."""
        tree, budget, size = self.tree, self.budget, self.sim.page_size
        on_device, on_host = tree.match(request.chain[: (request.tokens - 1) // size], request.prompt)
        d, h = (sum(len(node.pages) for node in nodes) for nodes in (on_device, on_host))
        if h * size < self.rules.load_back_threshold:
            h = 0
        g = self.choose_retrieval(request, d, h)
        extend = request.tokens - d * size
        if extend + self.clip(request) >= budget.total():
            return "capacity"
        if self.ceil(extend - g * size) >= budget.input and batch.members:
            return "other"
        deepest = on_device[-1] if on_device else None
        lock, host_lock = tree.lock(deepest), tree.host_lock(on_host)
        try:
            if extend + self.clip(request) >= budget.total():
                return "capacity"
            if tree.free < g:
                self.evict(g * size)
            if tree.free < g:
                g = 0
            if self.ceil(extend - g * size) >= budget.input and batch.members:
                assert g == 0
                return "other"
            self.waiting.remove(request)
            self.bring(batch, request, (d, h, g), deepest, host_lock)
            left = len(request.todo)
            assert left == extend - g * size
            self.take(batch, request, left if self.ceil(left) <= budget.chunk else budget.chunk // size * size)
            if request.todo:
                assert self.partial is None
                self.partial = request
            return None
        finally:
            tree.unlock(lock)
            tree.unlock(host_lock)

    def bring(self, batch: Batch, request: Any, split: tuple[int, int, int], deepest: Any, host_lock: Lock) -> None:
        """Load `g` of the `h` host pages that follow `d` device pages, and begin the request after them (§4, 5.7)."""
        (d, h, g), tree, size = split, self.tree, self.sim.page_size
        front = self.sim.policy.recomputes == "front"
        passed = [node for node in tree.nodes() if host_lock in node.host_locks]
        if front and g > 0:
            tree.take(request, g)
            batch.locks.append(tree.host_lock(passed))
        elif g > 0:
            deepest = tree.load_back(sorted(passed, key=lambda node: len(node.ancestors())), g)
            self.load_locks.append(tree.lock(deepest))
        first = d + h - g if front else d
        there = {*range(d * size), *range(first * size, (first + g) * size)}
        request.lock, request.shared = tree.lock(deepest), d if front else d + g
        request.todo = [position for position in range(request.tokens) if position not in there]
        request.admitted(d, range(first, first + g), self.sim.now, size)
        batch.loaded += g

    def ceil(self, tokens: int) -> int:
        return self.sim.pages(tokens) * self.sim.page_size

    def candidates(self) -> list[Any]:
        """Return the waiting requests that may take part, the queue in the order of §4.1."""
        if self.rules.schedule == "fcfs" or len(self.waiting) > 128:
            return list(self.waiting)
        size = self.sim.page_size
        shares = max(1, -(-32 // size))
        hits, put_off = {}, []
        for place, request in enumerate(self.waiting):
            on_device, _ = self.tree.match(request.chain[: (request.tokens - 1) // size], request.prompt)
            hits[request] = sum(len(node.pages) for node in on_device)
            pages = request.chain[: request.tokens // size]
            earlier = [other for other in self.waiting[:place] if other not in put_off]
            alike = [common(pages, other.chain[: other.tokens // size]) for other in earlier]
            if hits[request] * size <= 32 and max(alike, default=0) >= shares:
                put_off.append(request)
        self.waiting.sort(key=lambda request: (request in put_off, -hits[request]))
        return [request for request in self.waiting if request not in put_off]

    def choose_retrieval(self, request: Any, d: int, h: int) -> int:
        """Return how many of `h` pages on the host are loaded (§4.2)."""
        sim, policy = self.sim, self.sim.policy
        if h == 0 or policy.name == "default_policy":
            return h
        if policy.name == "all_compute":
            return 0
        missing = sim.pages(request.tokens) - d - h
        window = round(self.rules.rate_window_seconds * PS)
        recent = [other for other in self.arrivals if sim.now - window < other.arrival or other is request]
        restore = h / (sim.copy_time("h2d", h) * 1e-12)
        step = sim.prefill_time(range(d * sim.page_size, (d + h + missing) * sim.page_size))
        context = Context(
            total_blocks=float(h + missing), miss_blocks=float(missing), hit_blocks=float(h),
            request_rate=len(recent) / (window * 1e-12), p95_seconds=self.rules.ttft_seconds or 0.0,
            storage_throughput=restore, recompute_throughput=(h + missing) / (step * 1e-12),
            vram_hit_blocks=0.0, dram_hit_blocks=float(h), disk_hit_blocks=0.0,
            vram_throughput=math.inf, dram_throughput=restore, disk_throughput=restore,
            tokens_per_block=float(sim.page_size), token_seconds=sim.token_seconds,
            token_pair_seconds=sim.token_pair_seconds, recomputes=float(SIDES.index(policy.recomputes)),
        )  # fmt: skip
        return h - max(0, min(h, math.floor(policy.choose(context)[0] + 0.5)))

    # -- the step

    def launch(self, batch: Batch) -> None:
        """Begin the step after the stall of its round (§4)."""
        sim, begin = self.sim, self.sim.now + self.stall
        alone = sim.prefill_time([position for _, taken in batch.members for position in taken])
        duration = alone
        if batch.loaded:
            load = sim.copy_time("h2d", batch.loaded)
            self.h2d_bytes += batch.loaded * sim.page_bytes
            duration = max(alone + -(-load // sim.n_layers), load + -(-alone // sim.n_layers))
        for request, _ in batch.members:
            if "prefill_start" not in request.at:
                request.at["prefill_start"] = begin
                request.at["h2d_delay"] = duration - alone
                request.blocked[self.ended] += self.stall
        self.occupy(begin, duration, batch)

    def occupy(self, begin: int, duration: int, step: Any) -> None:
        self.busy = True
        if step is not None:
            self.computed.append((begin, begin + duration))

        def end() -> None:
            self.busy, self.step = False, step
            if isinstance(step, Batch):
                for request, _ in step.members:
                    request.position = request.todo[0] if request.todo else request.tokens
                    if request.complete:
                        request.at.setdefault("prefill_end", self.sim.now)
                for lock in step.locks:
                    self.tree.unlock(lock)

        self.sim.after(begin + duration - self.sim.now, STEP, self, end)

    def loop(self) -> None:
        """Repeat what an idle worker does until it is busy or nothing moves."""
        while not self.busy and self.once():
            pass

    def once(self) -> bool:
        raise NotImplementedError

    def held(self) -> tuple[int, int]:
        return self.tree.device_held(), self.tree.host_held()


class Budget:
    """What a round may still take [token]."""

    def __init__(self, worker: TreeWorker) -> None:
        self.worker = worker
        self.input, self.chunk = worker.group.max_prefill_tokens, worker.group.chunk_tokens
        self.off = worker.promised()

    def spent(self) -> bool:
        return self.input <= 0 or self.chunk <= 0 or self.total() <= 0

    def total(self) -> float:
        tree = self.worker.tree
        return (tree.free + tree.evictable) * tree.page_size - self.off
