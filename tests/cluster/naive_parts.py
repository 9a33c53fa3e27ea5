"""Parts of the slow twin of the cluster simulator that have no clock: pages and pools (§6), the gateway (§11)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kvsweep.cluster.inputs.config import Gateway
from kvsweep.cluster.policies.plugins import GatewayContext


class Page:
    """A page of KV at one prefill worker, in whichever tiers it is."""

    def __init__(self, segment: frozenset[int], parent: Page | None) -> None:
        self.segment = segment  # the requests that contain the page are what makes a segment
        self.begins_segment = parent is None or parent.segment != segment
        self.before, self.after = parent, list[Page]()
        self.pins = self.admissions = 0
        self.longest = 0  # prompt of an admission that contains it [token]
        self.released = (-1, -1)  # time, place in the order of releases
        if parent is not None:
            parent.after.append(self)


class Tier:
    """The pool of one tier at a prefill worker: space is free, reserved (in flight), or holds a resident page."""

    def __init__(self, pool: int, eviction: str, requests: Sequence[Any]) -> None:
        self.pool, self.eviction, self.requests = pool, eviction, requests
        self.is_surplus: Any = None  # whether a page is beyond what anybody needs (`tlru`)
        self.by_file: Any = None  # the key of a page by the policy of a file
        self.life_by_file: Any = None  # the seconds an idle page stays by the policy of a file
        self.lives: dict[Page, float] = {}  # ... of those that were asked for since their release [ps]
        self.resident: set[Page] = set()
        self.in_flight: set[Page] = set()  # of the host; on the device every request computes its own
        self.reserved = self.evicted = self.expired = 0
        self.began: dict[frozenset[int], int] = {}
        self.age = 0
        self.priority: dict[Page, int] = {}

    @property
    def held(self) -> int:
        return len(self.resident) + self.reserved

    @property
    def free(self) -> int:
        return self.pool - self.held

    def idle(self) -> set[Page]:
        return {page for page in self.resident if not page.pins}

    def show(self, page: Page, now: int) -> None:
        """Turn reserved space into the resident `page`, or free it where the page is resident already (§6)."""
        self.reserved -= 1
        self.in_flight.discard(page)
        if page not in self.resident:
            self.resident.add(page)
            if page.begins_segment:
                self.began[page.segment] = now

    def make_room(self, pages: int) -> None:
        """Evict until `pages` are free, one page after the other."""
        while self.free < pages:
            leaves = [page for page in self.idle() if not any(later in self.resident for later in page.after)]
            rank = self.by_file or getattr(self, self.eviction)
            victim = min(leaves, key=lambda page: (rank(page), page.released))
            self.evict(victim)
            while self.by_file and self.free < pages and victim.before in self.resident:
                if victim.begins_segment:
                    break
                victim = victim.before
                self.evict(victim)
            self.age = max(self.age, self.priority.get(victim, 0))

    def evict(self, page: Page) -> None:
        self.resident.remove(page)
        self.evicted += 1

    def note_release(self, page: Page, worth: int) -> None:
        """Give `page` its priority (`gdsf`); one page of its segment takes `worth` [ps] to compute."""
        self.priority[page] = self.age + page.admissions * worth

    def lru(self, page: Page) -> int:
        return 0

    def fifo(self, page: Page) -> int:
        return self.began[page.segment]

    def lfu(self, page: Page) -> int:
        return page.admissions

    def gdsf(self, page: Page) -> int:
        return self.priority[page]

    def tlru(self, page: Page) -> int:
        return 0 if self.is_surplus(page) else 1

    def belady(self, page: Page) -> float:
        return -min((number for number in page.segment if not self.requests[number].settled), default=math.inf)

    def drop_released_until(self, time: int) -> None:
        old = {page for page in self.idle() if page.released[0] <= time}
        self.resident -= old
        self.expired += len(old)

    def drop_as_asked(self, now: int) -> None:
        """Ask for idle pages that have their first check, and drop those whose time has come, the deepest first."""
        answers = {page: lifetime(self.life_by_file(page)) for page in self.idle() if page not in self.lives}
        self.lives |= answers
        while old := {
            page
            for page in self.idle()
            if page.released[0] + self.lives[page] <= now and not any(later in self.resident for later in page.after)
        }:
            self.resident -= old
            self.expired += len(old)


class Router:
    """Chooses among workers of one role, with a state of its own (§11)."""

    def __init__(self, config: Gateway, workers: Sequence[Any], plugin: Any) -> None:
        self.config, self.workers, self.plugin = config, workers, plugin
        self.next = 0
        self.sessions: dict[int, Any] = {}

    def choose(self, request: Any, candidates: list[Any], draws: Sequence[int]) -> Any:
        if self.plugin:
            return min(candidates, key=lambda worker: (self.cost_by_file(request, worker, draws), worker.number))
        return getattr(self, self.config.policy)(request, candidates, draws)

    def cost_by_file(self, request: Any, worker: Any, draws: Sequence[int]) -> float:
        d, h, in_prefill = 0, 0, 0
        is_prefill = hasattr(worker, "match")
        if is_prefill:
            d, h = worker.match(request)
            in_prefill = sum(other.n_pages for other in worker.in_progress if "prefill_end" not in other.at)
        sim = worker.sim
        context = GatewayContext(
            side=0.0 if is_prefill else 1.0, worker=worker.number, n_workers=len(self.workers),
            pool_pages=worker.device.pool if is_prefill else worker.pool, load_requests=worker.load,
            load_pages=sum(other.n_pages for other in worker.in_progress), prefill_pages=in_prefill,
            device_pages=d, host_pages=h, l3_pages=0, prompt_tokens=request.prompt, prompt_pages=request.n_pages,
            page_size=sim.page_size, session=request.session, draw=draws[0] / 2**31, seconds=sim.now * 1e-12,
        )  # fmt: skip
        return self.plugin.decide(context)

    def round_robin(self, request: Any, candidates: list[Any], draws: Sequence[int]) -> Any:
        n = len(self.workers)
        chosen = min(candidates, key=lambda worker: (worker.number - self.next) % n)
        self.next = chosen.number + 1
        return chosen

    def random(self, request: Any, candidates: list[Any], draws: Sequence[int]) -> Any:
        return candidates[draws[0] % len(candidates)]

    def least_loaded(self, request: Any, candidates: list[Any], draws: Sequence[int]) -> Any:
        return min(candidates, key=lambda worker: (worker.load, worker.number))

    def power_of_two(self, request: Any, candidates: list[Any], draws: Sequence[int]) -> Any:
        n = len(candidates)
        if n == 1:
            return candidates[0]
        i, j = draws[0] % n, draws[1] % (n - 1)
        j += j >= i
        return candidates[j] if candidates[j].load < candidates[i].load else candidates[i]

    def session_affinity(self, request: Any, candidates: list[Any], draws: Sequence[int]) -> Any:
        if request.session < 0:
            return self.round_robin(request, candidates, draws)
        if self.sessions.get(request.session) in candidates:
            return self.sessions[request.session]
        chosen = self.round_robin(request, candidates, draws)
        self.sessions.setdefault(request.session, chosen)
        return chosen

    def cache_aware(self, request: Any, candidates: list[Any], draws: Sequence[int]) -> Any:
        loads = [worker.load for worker in candidates]
        least, most = min(loads), max(loads)
        uneven = most - least > self.config.balance_requests and most > self.config.balance_ratio * least
        if hasattr(candidates[0], "match") and not uneven:
            best = min(candidates, key=lambda worker: (-sum(worker.match(request)), worker.load, worker.number))
            if sum(best.match(request)) > self.config.match_ratio * request.n_full:
                return best
        return self.least_loaded(request, candidates, draws)

    def kv_cost(self, request: Any, candidates: list[Any], draws: Sequence[int]) -> Any:
        costs = [self.cost(request, worker) for worker in candidates]
        cheapest = [worker for worker, cost in zip(candidates, costs, strict=True) if cost == min(costs)]
        return cheapest[draws[0] % len(cheapest)]

    def cost(self, request: Any, worker: Any) -> float:
        config, own, first = self.config, request.n_pages, 0.0
        if hasattr(worker, "match"):
            d, h = worker.match(request)
            raw = own + sum(other.n_pages for other in worker.in_progress if "prefill_end" not in other.at)
            credit = config.device_credit * d + config.host_credit * h + config.disk_credit * 0
            first = config.prefill_load_scale * max(0.0, raw - credit)
        decode = own + sum(other.n_pages for other in worker.in_progress)
        return first + decode + config.active_weight * worker.load


def mean_growth(trace: Any, with_answers: bool) -> int:
    """Return what a prompt has more than a worker saw of its session before, on average (`tlru`) [token]."""
    last: dict[int, int] = {}
    grown = []
    columns = (trace.session, trace.input_tokens, trace.output_tokens)
    for session, prompt, output in zip(*(column.tolist() for column in columns), strict=True):
        if session in last:
            grown.append(prompt - last[session])
        if session >= 0:
            last[session] = prompt + output * with_answers
    return max(0, sum(grown) // len(grown)) if grown else 0


def lifetime(seconds: float) -> float:
    """Return the answer of a retention policy [ps]."""
    return max(1, math.floor(seconds * 1e12 + 0.5)) if seconds * 1e12 < 2**61 else math.inf


def picoseconds(femtoseconds: int) -> int:
    return max(1, (femtoseconds + 500) // 1000)


def leading(pages: Sequence[Page], visible: set[Page]) -> int:
    """Return how many of `pages` are visible before the first that is not."""
    return next((i for i, page in enumerate(pages) if page not in visible), len(pages))
