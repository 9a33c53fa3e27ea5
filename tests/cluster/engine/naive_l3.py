"""Reading from and writing to L3 in the slow twin of the engines' rules (§9)."""

from __future__ import annotations

from collections import deque
from typing import Any

from tests.cluster.engine.naive_tree import Copy, Lock

READ, WRITE = 3, 4
"""Orders of the events."""


class Prefetch:
    """What a request looks for in L3: `n` pages of its chain from `first` on."""

    def __init__(self, worker: Any, request: Any, first: int, n: int) -> None:
        self.worker, self.request, self.first, self.n = worker, request, first, n
        self.began = worker.sim.now
        self.held = self.arrived = 0
        self.found: int | None = None
        self.done = self.closed = False

    def hold(self, pages: int) -> None:
        """Hold so many host pages from now on."""
        self.worker.tree.prefetching += pages - self.held
        self.held = pages

    def wanted(self) -> list[Any]:
        return self.request.chain[self.first : self.first + self.n]

    def deadline(self) -> int:
        rules, tokens = self.worker.sim.rules.l3, self.n * self.worker.sim.page_size
        return self.began + rules.timeout_base + rules.timeout_per_1024 * tokens // 1024

    def may_close(self, now: int) -> bool:
        stop = self.worker.sim.rules.l3.stop
        return self.done or stop == "best_effort" or (stop == "timeout" and now >= self.deadline())

    def close(self) -> None:
        """Keep what has arrived, give back the rest."""
        if self.closed:
            return
        self.closed = True
        request, tree = self.request, self.worker.tree
        self.hold(0)
        request.brought = tree.insert_host(request.chain[: self.first + self.arrived], self.first, request.prompt)
        self.worker.sim.l3.pins.pop(self, None)


class Reader:
    """Serves the prefetches of a worker, one after the other."""

    def __init__(self, worker: Any) -> None:
        self.worker, self.sim = worker, worker.sim
        self.queue: deque[Prefetch] = deque()
        self.busy = False
        self.bytes = 0

    def start(self, request: Any) -> None:
        """Begin the prefetch of a request that arrives, if it is worth one."""
        tree, rules, page = self.worker.tree, self.sim.rules.l3, self.sim.page_size
        on_device, on_host = tree.match(request.chain[: request.cap], request.prompt)
        first = sum(len(node.pages) for node in on_device + on_host)
        n = request.n_full - first
        held = sum(prefetch.held for prefetch in self.worker.prefetches())
        rooted = not on_device or on_device[-1].host
        room = 10 * held < 8 * (tree.host_pool - tree.device_pool)
        if n <= 0 or not rooted or n * page < rules.prefetch_threshold or not room:
            return
        if tree.host_free < n:
            tree.evict_host(n * page)
        if tree.host_free < n:
            return
        request.prefetch = Prefetch(self.worker, request, first, n)
        request.prefetch.hold(n)
        self.queue.append(request.prefetch)
        self.next()

    def next(self) -> None:
        while self.queue and not self.busy:
            prefetch = self.queue.popleft()
            if not prefetch.closed:
                self.query(prefetch)

    def serve(self, duration: int, then: Any) -> None:
        self.busy = True

        def end() -> None:
            self.busy = False
            then()
            self.next()

        self.sim.after(duration, READ, self.worker, end)

    def query(self, prefetch: Prefetch) -> None:
        wanted, size, l3 = prefetch.wanted(), self.sim.rules.l3.batch_pages, self.sim.l3
        batches = [wanted[begin : begin + size] for begin in range(0, len(wanted), size)]
        whole = [l3.leading(batch) == len(batch) for batch in batches]
        looked_at = whole.index(False) + 1 if False in whole else len(batches)

        def answered() -> None:
            if prefetch.closed:
                return
            found = l3.leading(wanted)
            if found * self.sim.page_size < self.sim.rules.l3.prefetch_threshold:
                prefetch.hold(0)
                prefetch.done = True
                return
            prefetch.hold(found)
            prefetch.found = found
            chain = prefetch.request.chain[: prefetch.first + found]
            l3.add(chain)
            l3.pins[prefetch] = chain
            self.read(prefetch)

        self.serve(looked_at * self.sim.rules.l3.query, answered)

    def read(self, prefetch: Prefetch) -> None:
        size = min(self.sim.rules.l3.batch_pages, prefetch.found - prefetch.arrived)
        self.bytes += size * self.sim.page_bytes

        def arrived() -> None:
            if prefetch.closed:
                return
            prefetch.arrived += size
            if prefetch.arrived == prefetch.found:
                prefetch.done = True
            else:
                self.read(prefetch)

        self.serve(self.sim.copy_time("l3_read", size), arrived)


class Writer:
    """Copies what was backed up on the host to L3, one node after the other."""

    def __init__(self, worker: Any) -> None:
        self.worker, self.sim = worker, worker.sim
        self.queue: deque[tuple[Copy, Lock]] = deque()
        self.busy = False
        self.bytes = 0

    def start(self, copy: Copy) -> None:
        tree = self.worker.tree
        nodes = [node for node in tree.nodes() if node.pages[0] in copy.pages]
        assert [name for node in nodes for name in node.pages] == copy.pages and all(node.host for node in nodes)
        self.queue.append((copy, tree.host_lock(nodes)))
        self.next()

    def next(self) -> None:
        while self.queue and not self.busy:
            copy, lock = self.queue.popleft()
            begin = max(self.sim.l3.leading(copy.chain), len(copy.chain) - len(copy.pages))
            n = len(copy.chain) - begin
            if n == 0 or self.sim.l3.leading(copy.chain) < begin:
                self.worker.tree.unlock(lock)
                continue
            self.busy = True
            self.bytes += n * self.sim.page_bytes

            def end(copy: Copy = copy, lock: Lock = lock, begin: int = begin) -> None:
                self.busy = False
                self.worker.tree.unlock(lock)
                if self.sim.l3.leading(copy.chain) >= begin:
                    self.sim.l3.add(copy.chain)
                self.next()

            self.sim.after(self.sim.l3_write_time(n), WRITE, self.worker, end)
