"""The loop of a decode worker in the slow twin of the engines' rules (§6)."""

from __future__ import annotations

from typing import Any

from tests.cluster.naive_parts import picoseconds

DECODE = 2
"""Order of the events."""
CLIP = 4096


def decode_step(worker: Any) -> int:
    """Return the time of a step of the members of `worker` [ps]."""
    base, context = worker.costs[len(worker.members)]
    stored = sum(request.prompt + request.generated - 1 for request in worker.members)
    return picoseconds(base + context * stored)


def hopeless(members: list[Any]) -> Any:
    """Return who is retracted next: fewest generated, longest prompt, latest in the batch."""
    candidates = [(request.generated, -request.prompt, -place, request) for place, request in enumerate(members)
                  if not request.through]  # fmt: skip
    return min(candidates, key=lambda candidate: candidate[:3])[3]


class DecodeWorker:
    """Reserves, receives, and decodes."""

    role = "decode"

    def __init__(self, sim: Any, number: int, group: Any) -> None:
        self.sim, self.number, self.group, self.rules = sim, number, group, sim.rules
        self.pool = group.device_tokens // sim.page_size
        self.pool_tokens = self.pool * sim.page_size
        self.costs = sim.decode_table(group)
        self.preallocation: list[Any] = []
        self.transferring: list[Any] = []
        self.waiting: list[Any] = []
        self.members: list[Any] = []
        self.retracted: list[Any] = []
        self.building: list[Any] = []  # in a prebuilt round
        self.busy = False
        self.in_progress: list[Any] = []  # routed here, and not through
        self.stall = self.retractions = 0
        self.computed: list[tuple[int, int]] = []
        self.step: tuple[str, list[Any]] | None = None
        self.h2d_bytes = self.d2h_bytes = 0

    @property
    def load(self) -> int:
        return len(self.in_progress)

    # -- pages

    def holders(self) -> list[Any]:
        return [*self.transferring, *self.waiting, *self.members, *self.building]

    @property
    def held_pages(self) -> int:
        return sum(request.held for request in self.holders())

    @property
    def free(self) -> int:
        return self.pool - self.held_pages

    def held(self) -> tuple[int, int]:
        return self.held_pages, 0

    def allocatable(self) -> int:
        promised = self.group.reserved_decode_tokens * (len(self.members) + len(self.transferring) + len(self.waiting))
        longest = max((min(r.output, CLIP) + r.prompt for r in self.members), default=0)
        stored = sum(r.prompt + r.generated for r in self.members)
        return self.free * self.sim.page_size - max(promised, longest - stored if self.members else 0)

    # -- the loop

    def arrive(self, request: Any) -> None:
        self.in_progress.append(request)
        self.preallocation.append(request)

    def loop(self) -> None:
        while not self.busy and self.once():
            pass

    def once(self) -> bool:
        sim = self.sim
        self.stall = 0
        self.step_ended()  # (a)
        moved = self.resume()  # (b)
        moved |= self.preallocate()  # (c)
        for request in [r for r in self.transferring if "handoff_end" in r.at]:  # (d)
            self.transferring.remove(request)
            self.waiting.append(request)
            moved = True
        room = self.group.max_running - len(self.members)
        if self.waiting and room > 0:  # (e)
            self.building, self.waiting = self.waiting[:room], self.waiting[room:]
            for request in self.building:
                request.at.setdefault("joined", sim.now + self.stall)
            self.leave([r for r in self.members if r.through])
            self.occupy(self.stall + sim.prebuilt, ("prebuilt", self.building))
            return False
        if self.members:
            self.decode()
        return moved

    def step_ended(self) -> None:
        now = self.sim.now
        kind, chosen = self.step or ("none", [])
        self.step = None
        if kind == "decode":
            self.leave(chosen)  # stale
            for request in self.members:
                request.deliver(now)
        elif kind == "prebuilt":
            self.building = []
            for request in chosen:
                if request.generated == 0:
                    request.deliver(now)
                self.members.append(request)
            self.leave([r for r in chosen if r.through])
        if not self.rules.overlap:
            self.leave([r for r in self.members if r.through])
        self.in_progress = [request for request in self.in_progress if not request.through]

    def leave(self, requests: list[Any]) -> None:
        for request in requests:
            self.members.remove(request)
            request.held = 0

    def resume(self) -> bool:
        moved = False
        while self.retracted:
            request = self.retracted[0]
            tokens = request.prompt + request.generated
            if tokens + self.group.reserved_decode_tokens > self.allocatable() and self.held_pages:
                break
            self.retracted.remove(request)
            self.hold(request, self.sim.pages(tokens - 1))
            self.waiting.append(request)
            self.stall += self.sim.copy_time("h2d", request.held)
            self.h2d_bytes += request.held * self.sim.page_bytes
            moved = True
        return moved

    def hold(self, request: Any, pages: int) -> None:
        assert pages - request.held <= self.free, "a page is given that is not there"
        request.held = pages

    def rows(self) -> int:
        most = self.group.max_running
        return most + (2 * most if most <= 32 else 0)

    def preallocate(self) -> bool:
        moved = False
        if self.retracted:
            return moved
        room, reserve = self.allocatable(), self.group.reserved_decode_tokens
        stored = sum(r.prompt + r.generated for r in self.members)
        while self.preallocation:
            request = self.preallocation[0]
            used = len(self.members) + len(self.transferring) + len(self.waiting)
            need = max(request.prompt + reserve, request.prompt + min(request.output, CLIP) - stored)
            if used >= self.rows() or need > room or self.sim.pages(request.prompt) > self.free:
                break
            room -= request.prompt + reserve
            self.preallocation.remove(request)
            self.transferring.append(request)
            self.hold(request, self.sim.pages(request.prompt))
            request.reserved = True
            request.at["reserved"] = self.sim.now
            self.sim.touch(request.at_prefill)
            moved = True
        return moved

    def needs_page(self, request: Any) -> bool:
        return not request.through and request.prompt + request.generated > request.held * self.sim.page_size

    def decode(self) -> None:
        while self.free < sum(self.needs_page(r) for r in self.members):
            request = hopeless(self.members)
            self.members.remove(request)
            self.stall += self.sim.copy_time("d2h", request.held)
            self.d2h_bytes += request.held * self.sim.page_bytes
            request.held = 0
            self.retracted.append(request)
            self.retractions += 1
        if self.members:
            stale = [r for r in self.members if r.through]
            duration = decode_step(self)
            begin = self.sim.now + self.stall
            self.computed.append((begin, begin + duration))
            self.sim.at_start(self.stall, DECODE, self, self.take_pages)
            self.occupy(self.stall + duration, ("decode", stale))
        elif self.stall:
            self.occupy(self.stall, ("stall", []))

    def take_pages(self) -> None:
        for request in self.members:
            if self.needs_page(request):
                self.hold(request, request.held + 1)

    def occupy(self, duration: int, step: tuple[str, list[Any]]) -> None:
        self.busy = True

        def end() -> None:
            self.busy, self.step = False, step

        self.sim.after(duration, DECODE, self, end)

    def check(self) -> None:
        assert 0 <= self.held_pages <= self.pool
        assert len(self.members) <= self.group.max_running
        for request in self.members:
            assert request.prompt + request.generated - 1 <= request.held * self.sim.page_size
