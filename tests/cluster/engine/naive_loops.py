"""The loops of prefill (§5) and colocated workers (§8) in the slow twin of the engines' rules."""

from __future__ import annotations

from typing import Any

from tests.cluster.engine.naive_decode import decode_step, hopeless
from tests.cluster.engine.naive_worker import CLIP, STEP, Batch, TreeWorker


class PrefillWorker(TreeWorker):
    """Prefills, and sends what it prefilled."""

    role = "prefill"

    def __init__(self, sim: Any, number: int, group: Any) -> None:
        super().__init__(sim, number, group)
        self.bootstrap: list[Any] = []
        self.in_flight: list[Any] = []
        self.begun: list[Any] = []  # between (c) and the end of (e)

    def arrive(self, request: Any) -> None:
        super().arrive(request)
        self.bootstrap.append(request)

    def free_slots(self) -> int:
        return self.group.max_running - sum("prefill_start" in request.at for request in self.begun)

    def clip(self, request: Any) -> int:
        return 1

    def once(self) -> bool:
        step, self.step = self.step, None
        self.stall = 0
        moved = False
        if step is not None:
            for request, _ in step.members:  # (a)
                self.tree.insert(request, request.position // self.sim.page_size, request.complete)
        if not self.rules.overlap:  # (b)
            moved |= self.results(step)
        while reserved := [r for r in self.bootstrap if r.reserved]:  # (c)
            if len(self.begun) >= 2 * self.group.max_running:
                break
            self.bootstrap.remove(reserved[0])
            self.begun.append(reserved[0])
            self.waiting.append(reserved[0])
            moved = True
        batch = self.round()  # (d)
        if batch is not None:
            self.launch(batch)
        if self.rules.overlap:  # (e)
            if batch is not None and self.stall:
                self.sim.after(self.stall, STEP, self, lambda: self.results(step))
            else:
                moved |= self.results(step)
        return moved

    def results(self, step: Batch | None) -> bool:
        """Send what a step computed, and end what has arrived (§5e)."""
        moved = False
        for request, _ in step.members if step is not None else []:
            whole = self.sim.pages(request.position) if request.complete else request.position // self.sim.page_size
            self.sim.transfers.queue(request, whole - request.sent, request.complete)
            request.sent = whole
            if request.complete:
                self.in_flight.append(request)
                moved = True
        for request in list(self.in_flight):
            if "handoff_end" in request.at:
                self.in_flight.remove(request)
                self.begun.remove(request)
                self.end(request)
                moved = True
        return moved

    def end(self, request: Any) -> None:
        self.tree.insert(request, request.n_full, True)
        self.tree.unlock(request.lock)
        self.tree.give_up(request, request.own)
        self.in_progress.remove(request)
        request.at["answered"] = self.sim.now


class ColocatedWorker(TreeWorker):
    """Prefills and decodes, prefill first."""

    role = "colocated"

    def __init__(self, sim: Any, number: int, group: Any) -> None:
        super().__init__(sim, number, group)
        self.members: list[Any] = []
        self.start = min(1.0, 0.7 * sim.rules.conservativeness)
        self.least = 0.14 * self.start
        self.ratio = self.start
        self.costs = sim.decode_table(group)
        self.retractions = 0

    def arrive(self, request: Any) -> None:
        super().arrive(request)
        self.waiting.append(request)

    def free_slots(self) -> int:
        return self.group.max_running - len(self.members)

    def clip(self, request: Any) -> int:
        return min(request.output - request.generated, CLIP)

    def promised(self) -> float:
        return self.ratio * sum(self.clip(request) for request in self.members)

    def once(self) -> bool:
        step, self.step = self.step, None
        self.stall = 0
        left = self.step_ended(step)  # (a)
        running = list(self.members)
        batch = self.round()  # (b)
        if batch is not None:
            self.launch(batch)
            through = [request for request in running if request.through]
            self.sim.at_start(self.stall, STEP, self, lambda: self.leave(through))
            return False
        if self.members:  # (c)
            self.decode()
            if self.busy:
                return False
        left |= self.leave([request for request in self.members if request.through])
        if not (self.members or self.waiting or self.partial):
            self.ratio = self.start
        return left

    def round(self) -> Batch | None:
        tried = (self.waiting and not self.full) or self.partial is not None
        batch = super().round()
        if tried and self.ended != "other" and (batch is not None or self.members):
            self.full = True
        return batch

    def step_ended(self, step: Any) -> bool:
        stale = [request for request in self.members if request.through]
        if isinstance(step, Batch):
            self.prefilled(step)
        elif step is not None:
            assert stale == step
            for request in self.members:
                if not request.through:
                    request.deliver(self.sim.now)
        for request in self.members:
            if request.through and request in self.in_progress:
                self.in_progress.remove(request)
        return self.leave(stale if self.rules.overlap else [r for r in self.members if r.through])

    def prefilled(self, step: Batch) -> None:
        for request, _ in step.members:
            self.tree.insert(request, request.position // self.sim.page_size, request.complete)
        for request in [request for request, _ in step.members if request.complete]:
            request.deliver(self.sim.now)
            self.members.append(request)

    def leave(self, requests: list[Any]) -> bool:
        for request in requests:
            self.members.remove(request)
            self.tree.insert(request, (request.prompt + request.output - 1) // self.sim.page_size, True)
            self.tree.unlock(request.lock)
            self.tree.give_up(request, request.own)
            self.full = False
        return bool(requests)

    def needs_page(self, request: Any) -> bool:
        return not request.through and (request.prompt + request.generated - 1) % self.sim.page_size == 0

    def missing(self) -> bool:
        return self.tree.free < sum(self.needs_page(request) for request in self.members)

    def make_room(self) -> None:
        self.evict(sum(self.needs_page(request) for request in self.members) * self.sim.page_size)

    def decode(self) -> None:
        """Begin a decode step, if there is room for one (§8c)."""
        if self.missing():
            self.poll_acks()
            self.make_room()
        retracted = self.retract()
        if self.missing():
            if self.partial is not None:
                request, self.partial = self.partial, None
                self.give_back(request)
                self.waiting.insert(0, request)
            self.make_room()
        if self.missing():
            return
        self.sim.at_start(self.stall, STEP, self, self.take_pages)
        if not retracted:
            self.ratio = max(self.least, self.ratio - (self.start - self.least) / 600)
        stale = [request for request in self.members if request.through]
        self.occupy(self.sim.now + self.stall, decode_step(self), stale)

    def retract(self) -> bool:
        """Give up members while pages are missing, but for the last; return whether there were any."""
        retracted = False
        while self.missing() and sum(not request.through for request in self.members) > 1:
            request = hopeless(self.members)
            self.members.remove(request)
            self.give_back(request)
            self.waiting.append(request)
            self.full, retracted = False, True
            self.retractions += 1
            tokens = sum(r.generated for r in self.members) + 20 * len(self.members)
            self.ratio = min(1.0, tokens / (sum(r.output for r in self.members) + 1))
            if self.missing():
                self.make_room()
        return retracted

    def take_pages(self) -> None:
        for request in self.members:
            if self.needs_page(request):
                self.tree.take(request, 1)

    def give_back(self, request: Any) -> None:
        """Undo an admission."""
        self.tree.unlock(request.lock)
        self.tree.give_up(request, request.own)
        request.lock, request.shared, request.todo, request.position = None, 0, [], 0
