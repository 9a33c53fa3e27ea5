"""The slow, obvious twin of the cluster simulator: the rules of ``kvsweep/cluster/paper/README.md`` said a second time.

Written from the text of the rules alone, and to be read as their definition: every page of KV is an object, every
position of a prompt a number in a list, every choice a `min` over all there is to choose from.
The numbers in brackets (§5) are the sections of the rules. Times are integers [ps], capacities integers [page].

Here are the clock and the prefill worker; ``naive_decode`` and ``cluster/naive_parts`` hold the rest.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from kvsweep.cluster.inputs.config import ClusterConfig, PrefillGroup
from kvsweep.cluster.inputs.service_profile import Profile, coefficients
from kvsweep.cluster.policies.plugins import IdleContext, select_plugin
from kvsweep.policies import load_policies
from kvsweep.policies.context import SIDES, Context
from kvsweep.trace.convert import change_block_size
from kvsweep.trace.model import Trace
from tests.cluster.naive_parts import Page, Router, Tier, leading, mean_growth, picoseconds
from tests.cluster.paper.naive_decode import Chunk, DecodeWorker

H2D, D2H, PREFILL, ARRIVALS = 3, 4, 5, 6
"""Resource order, after decode; inbound, the first, has no entry in the heap of events: its ends are re-timed."""
PS = 1e12
Job = Any


class Request:
    """One request: what it asks for, then what becomes of it."""

    def __init__(self, number: int, trace: Trace, page_size: int) -> None:
        self.number = number
        self.arrival = round(float(trace.arrival[number]) * PS)
        self.prompt, self.output = int(trace.input_tokens[number]), int(trace.output_tokens[number])
        self.session = int(trace.session[number])
        self.n_full, self.n_pages = self.prompt // page_size, -(-self.prompt // page_size)
        self.cap = (self.prompt - 1) // page_size
        named = trace.blocks[trace.offsets[number] : trace.offsets[number + 1]].tolist()[: self.n_full]
        # Pages without a name are this request's alone.
        self.names = named + [(number, k) for k in range(len(named), self.n_full)]
        self.follows: Request | None = None  # closed loop: the request before it in its session
        self.think = 0
        self.rejected = True
        self.settled = False  # admitted, or rejected
        self.at_prefill: PrefillWorker
        self.at_decode: DecodeWorker
        self.chain: list[Page] = []
        self.device_hits = self.retrieved = 0  # d and g [page]
        self.todo: list[int] = []  # positions still to execute, ascending
        self.shown = self.position = self.uncached = self.delivered = 0
        self.chunks: list[Chunk] = []  # without a reservation they wait here
        self.busy_with: set[str] = set()  # "handoff", "write-back": what keeps the chain pinned
        self.reserved = False
        self.blocked: Counter[str] = Counter()
        self.at: dict[str, int] = {}  # times by name


class Fifo:
    """A resource that serves one job at a time, first come first served (H2D and D2H)."""

    def __init__(self, sim: Cluster, place: tuple[int, int], seconds: Callable[[Job], int]) -> None:
        self.sim, self.place, self.duration = sim, place, seconds
        self.queue: deque[Job] = deque()
        self.busy = False

    def dispatch(self, began: Callable[[Job], None], done: Callable[[Job], None]) -> None:
        if self.busy or not self.queue:
            return
        self.busy = True
        job = self.queue.popleft()
        began(job)

        def end() -> None:
            self.busy = False
            done(job)

        self.sim.after(self.duration(job), self.place, end)


class PrefillWorker:
    """Waiting queue, prefill steps, both tiers and both copy engines of one worker."""

    def __init__(self, sim: Cluster, number: int, group: PrefillGroup) -> None:
        self.sim, self.number, self.group = sim, number, group
        page, eviction = sim.page_size, sim.config.eviction.policy
        self.device = Tier(group.device_tokens // page, eviction, sim.requests)
        self.host = Tier(group.host_tokens // page, eviction, sim.requests)
        self.device.is_surplus = self.host.is_surplus = self.is_surplus
        plugin = select_plugin("eviction", eviction, sim.policy_files)
        if plugin:
            self.device.by_file = lambda page: plugin.decide(self.seen(page, self.device, 0.0))
            self.host.by_file = lambda page: plugin.decide(self.seen(page, self.host, 1.0))
        keep = select_plugin("retention", sim.config.retention.policy, sim.policy_files)
        if keep:
            self.device.life_by_file = lambda page: keep.decide(self.seen(page, self.device, 0.0))
            self.host.life_by_file = lambda page: keep.decide(self.seen(page, self.host, 1.0))
        self.pages: dict[Any, Page] = {}
        self.waiting: deque[Request] = deque()
        self.ready: deque[Request] = deque()
        self.partial: Request | None = None
        self.stepping = False
        self.h2d = Fifo(sim, (H2D, number), lambda request: sim.copy_time(1, request.retrieved))
        self.d2h = Fifo(sim, (D2H, number), lambda copy: sim.copy_time(2, len(copy[1])))
        self.source: deque[Chunk] = deque()
        self.sending = False
        self.running = self.busy_time = 0
        self.in_progress: list[Request] = []  # routed here, handoff not ended
        self.arrivals: list[Request] = []
        self.blocked: str | None = None  # why the last formation of a step ended

    @property
    def load(self) -> int:
        return len(self.in_progress)

    def chain(self, request: Request) -> list[Page]:
        pages: list[Page] = []
        for name in request.names:
            if name not in self.pages:
                self.pages[name] = Page(self.sim.segments[name], pages[-1] if pages else None)
            pages.append(self.pages[name])
        return pages

    def match(self, request: Request) -> tuple[int, int]:
        """Return how many pages can be reused on the device, and of those that follow on the host (d, h)."""
        usable = self.chain(request)[: request.cap]
        d = leading(usable, self.device.resident)
        return d, leading(usable[d:], self.host.resident)

    # -- admission (§5)

    def obstacle(self, request: Request) -> str | None:
        """Return what keeps the first waiting request from being admitted."""
        if self.running >= self.group.max_running:
            return "prefill_slots"
        others = self.device.idle() - set(self.chain(request))
        return "prefill_capacity" if self.needed(request) > self.device.free + len(others) else None

    def needed(self, request: Request) -> int:
        """Return the device pages to be reserved: all but those of the chain that are there, matched or not."""
        return self.sim.pages(request.prompt) - leading(self.chain(request), self.device.resident)

    def admit(self, request: Request) -> None:
        sim, size = self.sim, self.sim.page_size
        d, h = self.match(request)
        g = self.choose_retrieval(request, d, h)
        request.chain = self.chain(request)
        for page in request.chain:
            page.pins += 1
            page.admissions += 1
            page.longest = max(page.longest, request.prompt)
        needed = self.needed(request)
        self.device.make_room(needed)
        self.device.reserved += needed
        self.running += 1
        request.busy_with = {"handoff"}
        request.device_hits, request.retrieved = d, g
        request.shown = leading(request.chain, self.device.resident)
        first = d + h - g if sim.policy.recomputes == "front" else d
        there = {*range(d * size), *range(first * size, (first + g) * size)}
        request.todo = [position for position in range(request.prompt) if position not in there]
        request.uncached = len(request.todo)
        request.at["admitted"] = sim.now
        request.settled = True
        if g == 0:
            request.at["ready"] = sim.now

    def choose_retrieval(self, request: Request, d: int, h: int) -> int:
        """Return how many of the `h` pages on the host are retrieved (§10)."""
        sim, size, model = self.sim, self.sim.page_size, self.sim.profile.prefill
        policy = sim.policy
        if h == 0 or policy.name == "default_policy":
            return h
        if policy.name == "all_compute":
            return 0
        missing = sim.pages(request.prompt) - d - h
        window = round(sim.config.retrieval.rate_window_seconds * PS)
        recent = [other for other in self.arrivals if sim.now - window < other.arrival or other is request]
        restore = h / (sim.copy_time(1, h) * 1e-12)
        step = sim.prefill_time(range(d * size, (d + h + missing) * size))
        context = Context(
            total_blocks=float(h + missing), miss_blocks=float(missing), hit_blocks=float(h),
            request_rate=len(recent) / (window * 1e-12), p95_seconds=sim.config.slo.ttft_seconds or 0.0,
            storage_throughput=restore, recompute_throughput=(h + missing) / (step * 1e-12),
            vram_hit_blocks=0.0, dram_hit_blocks=float(h), disk_hit_blocks=0.0,
            vram_throughput=math.inf, dram_throughput=restore, disk_throughput=restore,
            tokens_per_block=float(size), token_seconds=model.token_seconds,
            token_pair_seconds=model.token_pair_seconds, recomputes=float(SIDES.index(policy.recomputes)),
        )  # fmt: skip
        return h - max(0, min(h, math.floor(policy.choose(context)[0] + 0.5)))

    # -- the prefill step (§5)

    def form_step(self) -> None:
        if self.stepping:
            return
        budget, self.blocked = self.group.chunk_tokens, None
        step: list[tuple[Request, list[int]]] = []
        while budget and (request := self.next_to_run()):
            left = request.todo
            taken = left if self.sim.pages(len(left)) * self.sim.page_size <= budget else left[:budget]
            if len(taken) < len(left):
                self.partial = request
            budget -= self.sim.pages(len(taken)) * self.sim.page_size
            request.at.setdefault("prefill_start", self.sim.now)
            step.append((request, taken))
        if step:
            self.stepping = True
            self.sim.note("prefill", self, [position for _, taken in step for position in taken])
            duration = self.sim.prefill_time([position for _, taken in step for position in taken])
            self.busy_time += duration
            self.sim.after(duration, (PREFILL, self.number), lambda: self.end_step(step))

    def next_to_run(self) -> Request | None:
        """Return the partial, else a ready, else a waiting request that takes part in a step now, if there is one."""
        if self.partial:
            request, self.partial = self.partial, None
            return request
        if self.ready:
            return self.ready.popleft()
        while self.waiting:
            self.blocked = self.obstacle(self.waiting[0])
            if self.blocked:
                return None
            request = self.waiting.popleft()
            self.admit(request)
            if request.retrieved == 0:
                return request
            self.h2d.queue.append(request)
        return None

    def end_step(self, step: list[tuple[Request, list[int]]]) -> None:
        self.stepping = False
        for request, taken in step:
            request.todo = request.todo[len(taken) :]
            begin, request.position = request.position, request.todo[0] if request.todo else request.prompt
            self.show_device(request)
            if "first_step_end" not in request.at:
                request.at["first_step_end"] = self.sim.now
                request.at_decode.reservations.append(request)
            request.chunks.append(
                Chunk(request, self.sim.pages(request.position) - self.sim.pages(begin), not request.todo)
            )
            if request.reserved:
                self.send_chunks(request)
            if not request.todo:
                request.at["prefill_end"] = self.sim.now
                self.write_back(request)

    def show_device(self, request: Request) -> None:
        """Make visible what is complete up to the first position that is neither executed nor retrieved (§6)."""
        upto = (request.todo[0] if request.todo else request.prompt) // self.sim.page_size
        for page in request.chain[request.shown : upto]:
            self.device.show(page, self.sim.now)
        request.shown = max(request.shown, upto)

    # -- copies between the tiers (§5, §6)

    def copy(self) -> None:
        def began(request: Request) -> None:
            request.at["h2d_start"] = self.sim.now
            self.sim.note("h2d", self, request.retrieved)

        self.h2d.dispatch(began, self.end_retrieval)

    def copy_back(self) -> None:
        self.d2h.dispatch(lambda copy: self.sim.note("d2h", self, len(copy[1])), self.end_write_back)

    def end_retrieval(self, request: Request) -> None:
        request.at["ready"] = self.sim.now
        self.show_device(request)
        self.ready.append(request)

    def write_back(self, request: Request) -> None:
        write, host = self.sim.config.write, self.host
        if write.policy == "none":
            return
        candidates = [
            page
            for page in request.chain
            if page not in host.resident and page not in host.in_flight and page.admissions >= write.threshold
        ]
        copied = candidates[: host.free + len(host.idle())]
        if copied:
            host.make_room(len(copied))
            host.reserved += len(copied)
            host.in_flight.update(copied)
            request.busy_with.add("write-back")
            self.d2h.queue.append((request, copied))

    def end_write_back(self, copy: tuple[Request, list[Page]]) -> None:
        request, pages = copy
        for page in pages:
            self.host.show(page, self.sim.now)
        self.unpin_after(request, "write-back")

    def unpin_after(self, request: Request, ended: str) -> None:
        """Release the chain when neither handoff nor write-back needs it any more, the deepest page first."""
        request.busy_with.remove(ended)
        if not request.busy_with:
            for page in reversed(request.chain):
                page.pins -= 1
                if not page.pins:
                    page.released = (self.sim.now, next(self.sim.releases))
                    self.device.lives.pop(page, None)
                    self.host.lives.pop(page, None)
                    if self.device.eviction == "gdsf":
                        worth = self.worth(page, request.chain)
                        self.device.note_release(page, worth)
                        self.host.note_release(page, worth)

    def is_surplus(self, page: Page) -> bool:
        """Return whether `page` begins beyond what its conversations need (`tlru`)."""
        position, before = 0, page.before
        while before:
            position, before = position + self.sim.page_size, before.before
        config = self.sim.config.eviction
        growth = self.sim.growth if config.growth_tokens is None else config.growth_tokens
        return position >= max(0, page.longest + growth - config.xi_tokens)

    def worth(self, page: Page, chain: list[Page]) -> int:
        """Return the time to compute a page of the segment of `page` [ps]."""
        size = self.sim.page_size
        places = [place for place, other in enumerate(chain) if other.segment == page.segment]
        positions = range(places[0] * size, (places[-1] + 1) * size)
        return max(1, self.sim.prefill_time(positions) // len(places))

    def seen(self, page: Page, tier: Tier, number: float) -> IdleContext:
        """Return what a policy from a file sees of the segment of `page` (§6)."""
        size = self.sim.page_size
        chain = self.chain(self.sim.requests[min(page.segment)])
        places = [place for place, other in enumerate(chain) if other.segment == page.segment]
        positions = range(places[0] * size, (places[-1] + 1) * size)
        resident = sum(chain[place] in tier.resident for place in places)
        return IdleContext(
            tier=number, segment_pages=len(places), resident_pages=resident, position_pages=places[0],
            uses=page.admissions, released_seconds=page.released[0] * 1e-12,
            born_seconds=tier.began[page.segment] * 1e-12, compute_seconds=self.sim.prefill_time(positions) * 1e-12,
            page_size=size, seconds=self.sim.now * 1e-12,
        )  # fmt: skip

    # -- handoff (§8)

    def send_chunks(self, request: Request) -> None:
        for chunk in request.chunks:
            chunk.queued = self.sim.now
            self.source.append(chunk)
        request.chunks = []

    def send(self) -> None:
        if not self.sending and self.source:
            self.sending = True
            chunk = self.source.popleft()
            self.sim.note("handoff", self, chunk)
            chunk.request.at_decode.begin_chunk(chunk)

    def end_handoff(self, request: Request) -> None:
        self.running -= 1
        self.in_progress.remove(request)
        self.device.reserved -= self.sim.pages(request.prompt) - request.n_full  # the rest
        self.unpin_after(request, "handoff")


class Cluster:
    """The clock (§3), the arrivals (§4), and all workers."""

    def __init__(self, trace: Trace, config: ClusterConfig, profile: Profile, policy_files: Sequence[Path]) -> None:
        self.config, self.profile, self.page_size = config, profile, config.page_size
        self.policy_files = policy_files
        self.policy = load_policies(policy_files)[config.retrieval.policy]
        figures = coefficients(profile, config.page_size)
        self.prefill_fs, self.paths = figures.prefill.tolist(), figures.paths.tolist()
        self.page_bytes = figures.page_bytes
        self.now = 0
        self.events: list[Any] = []
        self.serial, self.releases = count(), count()
        if trace.block_size:
            trace = change_block_size(trace, config.page_size)
        self.growth = mean_growth(trace, False)
        self.requests = [Request(i, trace, config.page_size) for i in range(len(trace))]
        if config.workload.mode == "closed":
            self.wait_for_each_other(trace)
        owners: dict[Any, set[int]] = {}
        for request in self.requests:
            for name in request.names:
                owners.setdefault(name, set()).add(request.number)
        self.segments = {name: frozenset(found) for name, found in owners.items()}
        self.prefill = [PrefillWorker(self, w, group) for w, group in enumerate(config.prefill_workers())]
        self.decode = [DecodeWorker(self, d, group) for d, group in enumerate(config.decode_workers())]
        router = select_plugin("gateway", config.gateway.policy, policy_files)
        self.gateways = Router(config.gateway, self.prefill, router), Router(config.gateway, self.decode, router)
        rng = np.random.default_rng(config.gateway.seed)
        self.draws = rng.integers(0, 2**31, (len(trace), 4)).tolist()
        self.tiers = [tier for worker in self.prefill for tier in (worker.device, worker.host)]
        self.history: list[tuple[int, list[int]]] = []  # pages held in each pool from a time on
        self.operations: list[tuple[str, Any, Any]] = []  # what began: kind, worker, sizes
        self.deliveries: list[int] = []  # when each token was delivered

    def pages(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def copy_time(self, path: int, pages: int) -> int:
        setup, byte_milli = self.paths[path]
        return picoseconds(setup + byte_milli * (pages * self.page_bytes) // 1000)

    def prefill_time(self, positions: Sequence[int]) -> int:
        fixed, token, pair, least = self.prefill_fs
        squares = sum((position + 1) ** 2 - position**2 for position in positions)
        return picoseconds(max(least, fixed + token * len(positions) + pair * squares // 2))

    def after(self, duration: int, place: tuple[int, int], action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + duration, *place, next(self.serial), action))

    def note(self, kind: str, worker: Any, sizes: Any) -> None:
        self.operations.append((kind, worker, sizes))

    def run(self) -> None:
        for request in self.requests:
            if not request.follows:
                self.expect(request, request.arrival)
        while times := [time for time in (*(d.due() for d in self.decode), *self.events[:1]) if time is not None]:
            self.move_clock(min(time[0] if isinstance(time, tuple) else time for time in times))
            for worker in self.decode:
                while worker.due() == self.now:
                    worker.end_chunk()
            while self.events and self.events[0][0] == self.now:
                heapq.heappop(self.events)[-1]()
            self.dispatch()
            self.note_held()

    def expect(self, request: Request, time: int) -> None:
        request.arrival = time
        self.after(time - self.now, (ARRIVALS, request.number), lambda: self.arrive(request))

    def let_follow(self, request: Request) -> None:
        """Let the next request of the session come after its think time (§4)."""
        later = next((other for other in self.requests if other.follows is request), None)
        if later:
            self.expect(later, self.now + later.think)

    def wait_for_each_other(self, trace: Trace) -> None:
        """Have each request of a session but the first follow the one before it (§4)."""
        last: dict[int, Request] = {}
        for request, stated in zip(self.requests, trace.think.tolist(), strict=True):
            before = last.get(request.session) if request.session >= 0 else None
            last[request.session] = request
            if before:
                seconds = self.config.workload.think_seconds if math.isnan(stated) else stated
                request.follows = before
                request.think = request.arrival - before.arrival if seconds is None else round(seconds * PS)

    def move_clock(self, time: int) -> None:
        for worker in self.prefill:
            for request in worker.waiting:
                if worker.blocked:
                    request.blocked[worker.blocked] += time - self.now
        if self.config.retention.policy != "none":
            every, age = (round(s * PS) for s in (self.config.retention.check_seconds, self.config.retention.seconds))
            for tick in range((self.now // every + 1) * every, time + 1, every):
                self.now = tick
                for tier in self.tiers:
                    if self.config.retention.policy == "idle_ttl":
                        tier.drop_released_until(tick - age)
                    else:
                        tier.drop_as_asked(tick)
                self.note_held()
        self.now = time

    def dispatch(self) -> None:
        for worker in self.decode:
            worker.reserve()
        for source in self.prefill:
            source.send()
        for worker in self.decode:
            worker.step()
        for stage in (PrefillWorker.form_step, PrefillWorker.copy, PrefillWorker.copy_back):
            for source in self.prefill:
                stage(source)

    def arrive(self, request: Request) -> None:
        whole = self.pages(request.prompt + request.output)
        sources = [worker for worker in self.prefill if worker.device.pool >= self.pages(request.prompt)]
        targets = [worker for worker in self.decode if worker.pool >= whole]
        request.settled = not (sources and targets)
        if request.settled:
            self.let_follow(request)
        if sources and targets:
            draws = self.draws[request.number]
            request.rejected = False
            request.at_prefill = self.gateways[0].choose(request, sources, draws[:2])
            request.at_decode = self.gateways[1].choose(request, targets, draws[2:])
            request.at_prefill.in_progress.append(request)
            request.at_decode.in_progress.append(request)
            request.at_prefill.arrivals.append(request)
            request.at_prefill.waiting.append(request)

    def note_held(self) -> None:
        self.history.append((self.now, [pool.held for pool in (*self.tiers, *self.decode)]))

    def occupancy(self, end: int) -> list[float]:
        """Return the mean over time, from 0 to `end`, of the tokens held in each pool."""
        total = [0] * len(self.history[0][1]) if self.history else []
        for (begin, held), (until, _) in zip(self.history, [*self.history[1:], (end, [])], strict=True):
            lasted = max(0, min(until, end) - begin)
            total = [sum_ + pages * lasted for sum_, pages in zip(total, held, strict=True)]
        return [self.page_size * sum_ / end if end else 0.0 for sum_ in total]


TIMES = ("prefill_start", "prefill_end", "handoff_end", "first_token", "finish")


def finished(trace: Trace, config: ClusterConfig, profile: Profile, policy_files: Sequence[Path] = ()) -> Cluster:
    """Return the cluster after its last event."""
    sim = Cluster(trace, config, profile, policy_files)
    sim.run()
    return sim


def run(trace: Trace, config: ClusterConfig, profile: Profile, policy_files: Sequence[Path] = ()) -> dict[str, Any]:
    """Return `requests` (one mapping each, times in integer [ps]), and figures of the workers."""
    sim = finished(trace, config, profile, policy_files)
    return {"requests": [_reported(request, sim) for request in sim.requests], **_workers(sim)}


def _reported(request: Request, sim: Cluster) -> dict[str, Any]:
    if request.rejected:
        return {"arrival": request.arrival, "rejected": True}
    at, arrival = request.at, request.arrival
    slots, capacity = request.blocked["prefill_slots"], request.blocked["prefill_capacity"]
    waited = at["admitted"] - arrival - slots - capacity + at["prefill_start"] - at["ready"]
    return {
        "arrival": arrival, "rejected": False, **{name: at[name] for name in TIMES},
        "l1": request.device_hits * sim.page_size, "l2": request.retrieved * sim.page_size,
        "uncached": request.uncached,
        "prefill_worker": request.at_prefill.number, "decode_worker": request.at_decode.number,
        "queue_delay": {
            "prefill": waited, "prefill_slots": slots, "prefill_capacity": capacity,
            "h2d": at.get("h2d_start", at["admitted"]) - at["admitted"],
            "decode_capacity": at["reserved"] - at["first_step_end"],
            "handoff": at["handoff_delay"], "decode": at["joined"] - at["handoff_end"],
        },
    }  # fmt: skip


def _workers(sim: Cluster) -> dict[str, Any]:
    finish = max((request.at["finish"] for request in sim.requests if not request.rejected), default=0)
    last_arrival = max((request.arrival for request in sim.requests), default=0)
    return {
        "evictions": [(worker.device.evicted, worker.host.evicted) for worker in sim.prefill],
        "expirations": [(worker.device.expired, worker.host.expired) for worker in sim.prefill],
        "busy": [worker.busy_time for worker in (*sim.prefill, *sim.decode)],
        "last_finish": finish,
        "occupancy": sim.occupancy(last_arrival or finish),
    }
