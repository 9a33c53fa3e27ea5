"""The decode worker of the slow twin of the cluster simulator: reservations (§7), inbound chunks (§8), batch (§9)."""

from __future__ import annotations

from collections import deque
from typing import Any

from kvsweep.cluster.inputs.config import DecodeGroup
from kvsweep.cluster.inputs.service_profile import decode_coefficients
from tests.cluster.naive_parts import picoseconds

DECODE = 2
"""Resource order of decode steps."""


class Chunk:
    """Pages of one request on their way from prefill to decode; the last one ends the handoff."""

    def __init__(self, request: Any, pages: int, last: bool) -> None:
        self.request, self.pages, self.last = request, pages, last
        self.alone = self.tag = 0  # isolated duration [ps]; virtual time of the end
        self.queued = self.began = self.end = 0  # the end is known from the start where chunks go in turn


class DecodeWorker:
    """Reservations, inbound chunks and the running batch of one worker."""

    def __init__(self, sim: Any, number: int, group: DecodeGroup) -> None:
        self.sim, self.number, self.group = sim, number, group
        self.pool = group.device_tokens // sim.page_size
        table = decode_coefficients(sim.profile, group.graph_buckets, group.max_running).tolist()
        self.base, self.context = [row[0] for row in table], [row[1] for row in table]
        self.reservations: deque[Any] = deque()
        self.promised = self.busy_time = 0
        self.in_progress: list[Any] = []  # routed here, not finished
        self.holds: dict[Any, int] = {}
        self.inbound: list[Chunk] = []
        self.virtual = self.updated = 0  # V [ps/256] and t0 [ps]
        self.joining: deque[Any] = deque()
        self.batch: list[Any] = []
        self.stepping = False

    @property
    def held(self) -> int:
        return sum(self.holds.values())

    @property
    def load(self) -> int:
        return len(self.in_progress)

    def reserve(self) -> None:
        """Admit from the front of the queue while prompt and full output fit (§7)."""
        while self.reservations:
            request = self.reservations[0]
            whole = self.sim.pages(request.prompt + request.output)
            if self.promised + whole > self.pool:
                return
            self.reservations.popleft()
            self.promised += whole
            self.holds[request] = self.sim.pages(request.prompt)
            request.reserved = True
            request.at["reserved"] = self.sim.now
            request.at_prefill.send_chunks(request)

    # -- inbound: processor sharing in virtual time (§8)

    @property
    def sharing(self) -> int:
        return len(self.inbound) if self.sim.config.handoff_sharing == "processor_sharing" else 1

    @property
    def in_turn(self) -> bool:
        return self.sim.config.handoff_sharing == "fifo"

    def due(self) -> int | None:
        """Return when the next chunk ends."""
        if not self.inbound:
            return None
        if self.in_turn:
            return self.inbound[0].end
        left = min(chunk.tag for chunk in self.inbound) - self.virtual
        return self.updated + max(0, -(-left * self.sharing // 256))

    def bring_up_to_date(self) -> None:
        if self.inbound:
            self.virtual += (self.sim.now - self.updated) * 256 // self.sharing
        else:
            self.virtual = 0
        self.updated = self.sim.now

    def begin_chunk(self, chunk: Chunk) -> None:
        self.bring_up_to_date()
        chunk.began, chunk.alone = self.sim.now, self.sim.copy_time(0, chunk.pages)
        chunk.tag = self.virtual + 256 * chunk.alone
        # Chunks of one instant are begun in the order of their sources.
        chunk.end = max([self.sim.now, *(other.end for other in self.inbound)]) + chunk.alone
        self.inbound.append(chunk)

    def end_chunk(self) -> None:
        self.bring_up_to_date()
        ends = (lambda chunk: chunk.end) if self.in_turn else (lambda chunk: chunk.tag)
        chunk = min(self.inbound, key=lambda chunk: (ends(chunk), chunk.request.at_prefill.number))
        self.inbound.remove(chunk)
        request, now = chunk.request, self.sim.now
        request.at_prefill.sending = False
        if chunk.last:
            request.at["handoff_end"] = now
            request.at["handoff_delay"] = chunk.began - chunk.queued + (now - chunk.began - chunk.alone)
            request.at_prefill.end_handoff(request)
            self.joining.append(request)

    # -- decode (§9)

    def step(self) -> None:
        if self.stepping:
            return
        while self.joining and len(self.batch) < self.group.max_running:
            request = self.joining.popleft()
            request.at["joined"] = self.sim.now
            self.batch.append(request)
        if self.batch:
            for request in self.batch:
                self.holds[request] = self.sim.pages(request.prompt + request.delivered + 1)
            n, stored = len(self.batch), sum(request.prompt + request.delivered for request in self.batch)
            self.stepping = True
            self.sim.note("decode", self, (n, stored))
            duration = picoseconds(self.base[n] + self.context[n] * stored)
            self.busy_time += duration
            self.sim.after(duration, (DECODE, self.number), self.end_step)

    def end_step(self) -> None:
        self.stepping = False
        for request in list(self.batch):
            request.delivered += 1
            self.sim.deliveries.append(self.sim.now)
            request.at.setdefault("first_token", self.sim.now)
            if request.delivered == request.output:
                request.at["finish"] = self.sim.now
                self.batch.remove(request)
                self.promised -= self.sim.pages(request.prompt + request.output)
                del self.holds[request]
                self.in_progress.remove(request)
                self.sim.let_follow(request)
