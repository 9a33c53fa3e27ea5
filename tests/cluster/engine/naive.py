"""The slow, obvious twin of ``fidelity: engine``: the rules of ``kvsweep/cluster/engine/README.md`` said a second time.

Written from the text of the rules alone. Here are the settings, requests, clock, gateway (§1, §2) and handoff (§7);
``naive_tree`` holds tree and page sets, ``naive_worker`` the round, ``naive_loops`` the loops of
prefill and colocated workers, ``naive_decode`` that of decode workers, ``naive_l3`` the third tier.
Times are integers [ps], capacities integers [page].
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from kvsweep.cluster.inputs.service_profile import Profile, coefficients, decode_coefficients
from kvsweep.cluster.policies.plugins import select_plugin
from kvsweep.policies import load_policies
from kvsweep.trace.convert import change_block_size
from kvsweep.trace.model import Trace
from tests.cluster.engine.naive_decode import DecodeWorker
from tests.cluster.engine.naive_loops import ColocatedWorker, PrefillWorker
from tests.cluster.engine.naive_tree import PageSet
from tests.cluster.naive_parts import Router, mean_growth, picoseconds

PS, FEMTO, ATTO = 1e12, 1e15, 1e18
TRANSFER, ARRIVAL = 1, 7
"""Orders of the events."""


@dataclass
class Group:
    """A worker."""

    role: str
    device_tokens: int
    host_tokens: int = 0
    chunk_tokens: int = 4096
    max_prefill_tokens: int = 16384
    max_running: int = 32
    reserved_decode_tokens: int = 512
    graph_buckets: tuple[int, ...] = (1, 2, 4, 8, 12, 16, 24, 32)


@dataclass
class L3:
    """The third tier; times [ps], paths as (setup [fs], per byte [1e-18 s])."""

    pool_tokens: int
    stop: str = "best_effort"
    prefetch_threshold: int = 256
    timeout_base: int = 10**12
    timeout_per_1024: int = 25 * 10**10
    query: int = 10**9
    read: tuple[int, int] = (0, 0)
    write: tuple[int, int] = (0, 0)
    batch_pages: int = 128
    """Pages looked at, read or set up at once."""


@dataclass
class Rules:
    """What a cluster file says."""

    groups: list[Group]
    page_size: int = 64
    gateway: str = "round_robin"
    seed: int = 0
    balance_requests: int = 64
    balance_ratio: float = 1.5
    match_ratio: float = 0.3
    tree_tokens: int = 2**26
    prefill_load_scale: float = 1.0
    device_credit: float = 1.0
    host_credit: float = 0.75
    disk_credit: float = 0.25
    active_weight: float = 0.0
    eviction: str = "lru"
    xi_tokens: int = 4096
    growth_tokens: int | None = None
    ttl: tuple[float, float] | None = None
    """`seconds` and `check_seconds` of ``idle_ttl``."""
    retention_file: str = ""
    """A retention policy of a file, which says the seconds of each node instead."""
    retrieval: str = "default_policy"
    rate_window_seconds: float = 60.0
    ttft_seconds: float | None = None
    write: str = "write_through"
    threshold: int = 1
    overlap: bool = True
    schedule: str = "fcfs"
    load_back_threshold: int = 10
    router_join: bool = True
    sharing: str = "processor_sharing"
    prebuilt: int = 0
    """[ps]"""
    n_layers: int = 32
    conservativeness: float = 1.0
    l3: L3 | None = None
    closed: bool = False
    think_seconds: float | None = None
    window_seconds: float = 5.0
    policy_files: Sequence[Path] = field(default_factory=tuple)

    @property
    def policy(self) -> str:
        """Return the gateway policy, as the router of the paper's twin asks for it."""
        return self.gateway


class Request:
    """One request: what it asks for, then what becomes of it."""

    def __init__(self, number: int, trace: Trace, page: int) -> None:
        self.number = number
        self.arrival = self.recorded = round(float(trace.arrival[number]) * PS)
        self.prompt, self.output = int(trace.input_tokens[number]), int(trace.output_tokens[number])
        self.session = int(trace.session[number])
        self.n_full, self.cap = self.prompt // page, (self.prompt - 1) // page
        self.n_pages = -(-self.prompt // page)
        named = trace.blocks[trace.offsets[number] : trace.offsets[number + 1]].tolist()[: self.n_full]
        # Pages without a name are this request's alone, and so are those of its answer.
        self.chain = named + [(number, k) for k in range(len(named), (self.prompt + self.output) // page)]
        self.follows: Request | None = None  # closed loop: the request before it in its session
        self.think = 0
        self.over = False  # finished, or rejected
        self.rejected = True
        self.settled = False  # admitted once, or rejected
        self.at_prefill: Any = None
        self.at_decode: Any = None
        self.reserved = False
        self.prefetch: Any = None
        self.brought = range(0)  # pages that its own prefetch put into the tree
        self.lock: Any = None
        self.shared = self.own = self.position = self.sent = 0
        self.todo: list[int] = []  # positions still to execute, ascending
        self.generated = 0
        self.held = 0  # pages at the decode worker
        self.hits: tuple[int, int, int] | None = None
        self.blocked: Counter[str] = Counter()
        self.at: dict[str, int] = {}  # times by name
        self.tokens_at: list[int] = []

    @property
    def tokens(self) -> int:
        """Return what there is to prefill [token]."""
        return self.prompt + self.generated

    @property
    def complete(self) -> bool:
        return self.position == self.tokens

    @property
    def through(self) -> bool:
        return self.generated == self.output

    def deliver(self, now: int) -> None:
        """Hand out one more token."""
        assert not self.through
        self.generated += 1
        self.tokens_at.append(now)

    def admitted(self, matched: int, loaded: range, now: int, page: int) -> None:
        """Note the hits of the first admission (§11)."""
        self.settled = True
        if self.hits is None:
            own = sum(place in self.brought for place in loaded)
            self.hits = matched * page, (len(loaded) - own) * page, own * page
            self.at["admitted"] = now


class Gateway(Router):
    """The gateway of the paper's rules, but for ``cache_aware`` and L3 (§2)."""

    def cost(self, request: Request, worker: Any) -> float:
        config, own, first = self.config, request.n_pages, 0.0
        if hasattr(worker, "tree"):
            d, h = worker.match(request)
            in_l3 = 0
            if worker.sim.l3 is not None:
                in_l3 = max(0, worker.sim.l3.leading(request.chain[: request.cap]) - d - h)
            raw = own + sum(other.n_pages for other in worker.in_progress if "prefill_end" not in other.at)
            credit = config.device_credit * d + config.host_credit * h + config.disk_credit * in_l3
            first = config.prefill_load_scale * max(0.0, raw - credit)
        decode = own + sum(other.n_pages for other in worker.in_progress)
        return first + decode + config.active_weight * worker.load

    def cache_aware(self, request: Request, candidates: list[Any], draws: Sequence[int]) -> Any:
        if not hasattr(candidates[0], "routed"):
            return self.least_loaded(request, candidates, draws)
        loads = [worker.load for worker in candidates]
        least, most = min(loads), max(loads)
        prompt = request.chain[: request.n_full]
        if most - least > self.config.balance_requests and most > self.config.balance_ratio * least:
            chosen = self.least_loaded(request, candidates, draws)
        else:
            alike = {worker: worker.routed.leading(prompt) for worker in candidates}
            chosen = min(candidates, key=lambda worker: (-alike[worker], worker.load, worker.number))
            if alike[chosen] * self.config.page_size <= self.config.match_ratio * request.prompt:
                chosen = min(candidates, key=lambda worker: (len(worker.routed), worker.number))
        chosen.routed.add(prompt)
        return chosen


class Chunk:
    """Pages of one request on their way (§7)."""

    def __init__(self, request: Request, pages: int, last: bool, now: int) -> None:
        self.request, self.pages, self.last, self.queued = request, pages, last, now
        self.source, self.target = request.at_prefill, request.at_decode
        self.began = self.alone = self.left = self.since = 0
        self.share = 1

    @property
    def pair(self) -> tuple[int, int]:
        return self.target.number, self.source.number

    def due(self) -> int:
        return self.since + max(0, -(-self.left * self.share // 256))


class Transfers:
    """Every chunk that waits or is on its way."""

    def __init__(self, sim: Cluster) -> None:
        self.sim = sim
        self.queues: dict[tuple[int, int], deque[Chunk]] = defaultdict(deque)
        self.on_the_way: list[Chunk] = []
        self.bytes: Counter[int] = Counter()

    def queue(self, request: Request, pages: int, last: bool) -> None:
        assert pages > 0
        chunk = Chunk(request, pages, last, self.sim.now)
        self.queues[chunk.pair].append(chunk)

    def share(self, chunk: Chunk) -> int:
        if self.sim.rules.sharing == "none":
            return 1
        into = sum(other.target is chunk.target for other in self.on_the_way)
        out = sum(other.source is chunk.source for other in self.on_the_way)
        return max(into, out)

    def bring_up_to_date(self) -> None:
        now = self.sim.now
        for chunk in self.on_the_way:
            share = self.share(chunk)
            if share != chunk.share:
                chunk.left -= (now - chunk.since) * 256 // chunk.share
                chunk.since, chunk.share = now, share

    def may_start(self, chunk: Chunk) -> bool:
        if any(other.pair == chunk.pair for other in self.on_the_way):
            return False
        if self.sim.rules.sharing != "fifo":
            return True
        if any(other.target is chunk.target for other in self.on_the_way):
            return False
        heads = [queue[0] for queue in self.queues.values() if queue and queue[0].target is chunk.target]
        return chunk is min(heads, key=lambda head: (head.queued, head.source.number))

    def start(self) -> None:
        for pair in sorted(self.queues):
            if self.queues[pair] and self.may_start(self.queues[pair][0]):
                chunk = self.queues[pair].popleft()
                chunk.began = chunk.since = self.sim.now
                chunk.alone = self.sim.copy_time("handoff", chunk.pages)
                chunk.left = 256 * chunk.alone
                self.bytes[chunk.source.number] += chunk.pages * self.sim.page_bytes
                self.on_the_way.append(chunk)
                chunk.share = self.share(chunk)
                self.bring_up_to_date()

    def due(self) -> int | None:
        return min((chunk.due() for chunk in self.on_the_way), default=None)

    def end_one(self) -> None:
        now = self.sim.now
        chunk = min((c for c in self.on_the_way if c.due() == now), key=lambda c: c.pair)
        self.on_the_way.remove(chunk)
        if chunk.last:
            chunk.request.at["handoff_end"] = now
            chunk.request.at["handoff_delay"] = chunk.began - chunk.queued + now - chunk.began - chunk.alone
        self.sim.touch(chunk.source)
        self.sim.touch(chunk.target)
        self.bring_up_to_date()


class Cluster:
    """The clock (§1), the arrivals (§2), and all workers."""

    def __init__(self, trace: Trace, rules: Rules, profile: Profile) -> None:
        self.rules, self.profile, self.page_size = rules, profile, rules.page_size
        self.policy = load_policies(rules.policy_files)[rules.retrieval]
        figures = coefficients(profile, rules.page_size)
        self.prefill_fs = figures.prefill.tolist()
        self.paths = dict(zip(("handoff", "h2d", "d2h"), figures.paths.tolist(), strict=False))
        self.page_bytes = figures.page_bytes
        self.token_seconds = profile.prefill.token_seconds
        self.token_pair_seconds = profile.prefill.token_pair_seconds
        self.n_layers, self.prebuilt = rules.n_layers, max(1, rules.prebuilt)
        self.l3 = None
        if rules.l3 is not None:
            self.l3 = PageSet(rules.l3.pool_tokens // rules.page_size)
            self.paths |= {"l3_read": rules.l3.read, "l3_write": rules.l3.write}
        self.now = 0
        self.events: list[Any] = []
        self.serial = count()
        self.touched: list[Any] = []
        self.transfers = Transfers(self)
        if trace.block_size:
            trace = change_block_size(trace, rules.page_size)
        self.requests = [Request(i, trace, rules.page_size) for i in range(len(trace))]
        if rules.closed:
            self.wait_for_each_other(trace)
        self.coming = [request for request in self.requests if request.follows is None]
        self.tree_workers: list[Any] = []
        self.decode: list[DecodeWorker] = []
        for group in rules.groups:
            if group.role == "decode":
                self.decode.append(DecodeWorker(self, len(self.decode), group))
            else:
                kind = PrefillWorker if group.role == "prefill" else ColocatedWorker
                self.tree_workers.append(kind(self, len(self.tree_workers), group))
        for worker in self.tree_workers:
            worker.tree.time_of, worker.tree.next_use = self.prefill_time, self.next_use
        self.colocated = not self.decode
        grown = mean_growth(trace, self.colocated) if rules.growth_tokens is None else rules.growth_tokens
        for worker in self.tree_workers:
            worker.tree.growth = grown
            for kind, name in (("eviction", rules.eviction), ("retention", rules.retention_file)):
                worker.tree.plugins[kind] = select_plugin(kind, name, rules.policy_files) if name else None
        self.gateways = Gateway(rules, self.tree_workers, None), Gateway(rules, self.decode, None)
        rng = np.random.default_rng(rules.seed)
        self.draws = rng.integers(0, 2**31, (len(trace), 4)).tolist()
        self.history: list[tuple[int, list[tuple[int, int]]]] = []

    def next_use(self, page: Any) -> float:
        """Return the number of the next request that has `page`, infinity for none (``belady``)."""
        due = (r.number for r in self.requests if not r.settled and page in r.chain[: r.n_full])
        return min(due, default=math.inf)

    # -- durations

    def pages(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def copy_time(self, path: str, pages: int) -> int:
        setup, per_byte = self.paths[path]
        return picoseconds(setup + per_byte * (pages * self.page_bytes) // 1000)

    def l3_write_time(self, pages: int) -> int:
        setup, per_byte = self.paths["l3_write"]
        return picoseconds(
            -(-pages // self.rules.l3.batch_pages) * setup + per_byte * (pages * self.page_bytes) // 1000
        )

    def prefill_time(self, positions: Sequence[int]) -> int:
        fixed, token, pair, least = self.prefill_fs
        squares = sum((position + 1) ** 2 - position**2 for position in positions)
        return picoseconds(max(least, fixed + token * len(positions) + pair * squares // 2))

    def decode_table(self, group: Group) -> list[tuple[int, int]]:
        table = decode_coefficients(self.profile, group.graph_buckets, group.max_running + 1)
        return [(base, context) for base, context in table.tolist()]

    # -- the clock

    def after(self, duration: int, order: int, worker: Any, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + duration, order, worker.number, next(self.serial), worker, action))

    def at_start(self, stall: int, order: int, worker: Any, action: Callable[[], None]) -> None:
        """Do `action` when a step begins: now, or after the stall before it."""
        if stall:
            self.after(stall, order, worker, action)
        else:
            action()

    def touch(self, worker: Any) -> None:
        if worker not in self.touched:
            self.touched.append(worker)

    def run(self) -> None:
        while True:
            times = [self.transfers.due(), *(worker.timer() for worker in self.tree_workers)]
            times += [event[0] for event in self.events[:1]] + [request.arrival for request in self.coming]
            known = [time for time in times if time is not None]
            if not known:
                break
            self.move_clock(min(known))
            self.events_of_the_instant()
            for role in (self.decode, self.tree_workers):
                for worker in role:
                    if worker in self.touched:
                        worker.loop()
                        self.note_finished()
            self.transfers.start()
            self.note_held()
            self.check()
        for request in self.requests:
            assert request.over, f"request {request.number} never ends"

    def events_of_the_instant(self) -> None:
        self.touched = [worker for worker in self.tree_workers if worker.timer_due(self.now)]
        while self.transfers.due() == self.now:
            self.transfers.end_one()
        while self.events and self.events[0][0] == self.now:
            *_, worker, action = heapq.heappop(self.events)
            self.touch(worker)
            action()
            self.note_finished()
        while due := [request for request in self.coming if request.arrival == self.now]:
            request = min(due, key=lambda request: request.number)
            self.coming.remove(request)
            self.arrive(request)

    def note_finished(self) -> None:
        """Let those come that wait for a request that has finished now."""
        for request in self.requests:
            answered = self.colocated or not self.rules.router_join or "answered" in request.at
            if request.through and answered and not request.over:
                self.let_follow(request)

    def let_follow(self, request: Request) -> None:
        request.over = True
        for later in self.requests:
            if later.follows is request:
                later.arrival = self.now + later.think
                self.coming.append(later)

    def wait_for_each_other(self, trace: Trace) -> None:
        """Have each request of a session but the first follow the one before it (paper, §4)."""
        last: dict[int, Request] = {}
        for request, stated in zip(self.requests, trace.think.tolist(), strict=True):
            before = last.get(request.session) if request.session >= 0 else None
            last[request.session] = request
            if before:
                seconds = self.rules.think_seconds if math.isnan(stated) else stated
                request.follows = before
                request.think = request.recorded - before.recorded if seconds is None else round(seconds * PS)

    def move_clock(self, time: int) -> None:
        assert time >= self.now
        for worker in self.tree_workers:
            waiting = [*worker.waiting, *(r for r in getattr(worker, "bootstrap", ()) if r.reserved)]
            for request in waiting:
                if request.hits is None:
                    request.blocked[worker.ended] += time - self.now
        if self.rules.ttl is not None and not all(request.over for request in self.requests):
            age, every = (round(seconds * PS) for seconds in self.rules.ttl)
            for tick in range((self.now // every + 1) * every, time + 1, every):
                self.now = tick
                for worker in self.tree_workers:
                    worker.tree.now = tick
                    worker.tree.expire(age)
                self.note_held()
        self.now = time
        for worker in self.tree_workers:
            worker.tree.now = time

    def arrive(self, request: Request) -> None:
        page, whole = self.page_size, self.pages(request.prompt + request.output)
        clipped = min(request.output, 4096)
        if self.colocated:
            sources = [
                w
                for w in self.tree_workers
                if request.prompt + clipped < w.pool_tokens and whole < w.pool_tokens // page
            ]
        else:
            sources = [w for w in self.tree_workers if request.prompt + 1 < w.pool_tokens]
        targets = [
            w
            for w in self.decode
            if request.prompt + max(w.group.reserved_decode_tokens, clipped) <= w.pool_tokens
            and whole <= w.pool_tokens // page
        ]
        if not sources or not (targets or self.colocated):
            request.settled = True
            self.let_follow(request)
            return
        draws = self.draws[request.number]
        request.rejected = False
        request.at_prefill = self.gateways[0].choose(request, sources, draws[:2])
        if not self.colocated:
            request.at_decode = self.gateways[1].choose(request, targets, draws[2:])
            request.at_decode.arrive(request)
            self.touch(request.at_decode)
        request.at_prefill.arrive(request)
        self.touch(request.at_prefill)

    def note_held(self) -> None:
        workers = [*self.tree_workers, *self.decode]
        held = [worker.held() for worker in workers] + [(len(self.l3) if self.l3 is not None else 0, 0)]
        self.history.append((self.now, held))

    def check(self) -> None:
        """Assert what must hold after every instant."""
        for worker in self.tree_workers:
            worker.tree.check()
            worker.routed.check()
            mine = [r for r in self.requests if r.at_prefill is worker]
            assert worker.tree.own == sum(r.own for r in mine)
            assert worker.tree.prefetching == sum(p.held for p in worker.prefetches())
            locked = {name for node in worker.tree.nodes() if node.device_locks for name in node.pages}
            for request in mine:
                if request.own or request.todo:
                    assert locked.issuperset(request.chain[: request.shared]), "shared, not locked"
        for worker in self.decode:
            worker.check()
        if self.l3 is not None:
            self.l3.check()

    def occupancy(self, end: int) -> list[tuple[float, float]]:
        """Return the mean over time, from 0 to `end`, of the tokens held in each pool."""
        total = np.zeros(np.shape(self.history[0][1])) if self.history else np.zeros((0, 2))
        for (begin, held), (until, _) in zip(self.history, [*self.history[1:], (end, [])], strict=True):
            total += np.array(held) * float(max(0, min(until, end) - begin))
        return [tuple(row) for row in (self.page_size * total / end if end else 0 * total).tolist()]


def run(trace: Trace, rules: Rules, profile: Profile) -> dict[str, Any]:
    """Return `requests` (one mapping each, times in integer [ps]), and figures of the workers."""
    sim = Cluster(trace, rules, profile)
    sim.run()
    requests = [_reported(request, sim) for request in sim.requests]
    finish = max((request["finish"] for request in requests if not request["rejected"]), default=0)
    last_arrival = max((request.arrival for request in sim.requests), default=0)
    workers = [*sim.tree_workers, *sim.decode]
    return {
        "requests": requests, "sim": sim, "last_finish": finish,
        "evictions": [tuple(worker.tree.evicted) for worker in sim.tree_workers],
        "expirations": [tuple(worker.tree.expired) for worker in sim.tree_workers],
        "retractions": [getattr(worker, "retractions", 0) for worker in workers],
        "busy": [sum(max(0, min(end, finish) - begin) for begin, end in worker.computed) for worker in workers],
        "occupancy": sim.occupancy(last_arrival or finish),
        "windows": _windows(sim, requests, finish),
        "trees": [worker.tree.pages() for worker in sim.tree_workers],
        "bytes": {
            "handoff": [sim.transfers.bytes[worker.number] for worker in sim.tree_workers],
            "h2d": [worker.h2d_bytes for worker in workers], "d2h": [worker.d2h_bytes for worker in workers],
            "l3_read": [worker.reader.bytes for worker in sim.tree_workers],
            "l3_write": [worker.writer.bytes for worker in sim.tree_workers],
        },
    }  # fmt: skip


def _windows(sim: Cluster, requests: list[dict[str, Any]], finish: int) -> dict[str, list[int]]:
    """Return what happens in each window of time."""
    window = round(sim.rules.window_seconds * PS)
    n = finish // window + 1
    served = [request for request in requests if not request["rejected"]]
    arrived, completed, delivered = (
        [sum(time // window == i for time in times) for i in range(n)]
        for times in (
            [request["arrival"] for request in served],
            [request["finish"] for request in served],
            [time for request in sim.requests for time in request.tokens_at],
        )
    )
    outstanding = np.cumsum(np.subtract(arrived, completed)).tolist()
    return {"outstanding": outstanding, "completed_requests": completed, "delivered_tokens": delivered}


def _reported(request: Request, sim: Cluster) -> dict[str, Any]:
    if request.rejected:
        return {"arrival": request.arrival, "rejected": True}
    at, arrival = request.at, request.arrival
    decoded = request.tokens_at[0]
    first = max(decoded, at["answered"]) if sim.rules.router_join and not sim.colocated else decoded
    begin = arrival if sim.colocated else at["reserved"]
    slots, capacity = request.blocked["slots"], request.blocked["capacity"]
    l1, l2, l3 = request.hits
    found = {
        "arrival": arrival, "rejected": False, "prefill_start": at["prefill_start"], "prefill_end": at["prefill_end"],
        "first_token": first, "finish": max(request.tokens_at[-1], first),
        "hits": request.hits, "uncached": request.prompt - l1 - l2 - l3,
        "prefill_worker": request.at_prefill.number,
        "decode_worker": request.at_decode.number if request.at_decode else None,
        "delay": {
            "prefill": at["prefill_start"] - begin - slots - capacity,
            "prefill_slots": slots, "prefill_capacity": capacity, "h2d": at["h2d_delay"],
        },
    }  # fmt: skip
    if not sim.colocated:
        found["handoff_end"] = at["handoff_end"]
        found["delay"] |= {
            "decode_capacity": at["reserved"] - arrival, "handoff": at["handoff_delay"],
            "decode": at["joined"] - at["handoff_end"], "join": first - decoded,
        }  # fmt: skip
    return found
