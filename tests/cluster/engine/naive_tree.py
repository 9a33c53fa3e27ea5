"""The tree (§3) and the page sets (§10) of the slow twin of the engines' rules: ``kvsweep/cluster/engine/README.md``.

Nodes are lists of page names with a dictionary of children; locks are objects that lie on nodes; what is free or
evictable is counted anew each time it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kvsweep.cluster.policies.plugins import IdleContext
from tests.cluster.naive_parts import lifetime

Name = Any
"""A page of a chain; equal names have equal chains before them."""


class Node:
    """A run of pages, in whichever tiers it is."""

    def __init__(self, pages: list[Name], parent: Node | None) -> None:
        self.pages, self.parent = pages, parent
        self.children: dict[Name, Node] = {}
        self.device = self.host = False
        self.device_locks: set[Lock] = set()
        self.host_locks: set[Lock] = set()
        self.hits = self.walk = self.time = self.made = self.born = self.longest = 0
        self.life: float | None = None  # time to live by the policy of a file, None where it is still to be asked [ps]
        self.priority = [0, 0]  # on the device, on the host (``gdsf``)

    def ancestors(self) -> list[Node]:
        """Return this node and those above it, the deepest first, without the root."""
        return [self, *self.parent.ancestors()] if self.parent else []

    def chain(self) -> list[Name]:
        """Return the names of all pages from the root to the end of this node."""
        return [name for node in reversed(self.ancestors()) for name in node.pages]

    def subtree(self) -> list[Node]:
        return [self, *(below for child in self.children.values() for below in child.subtree())]


class Lock:
    """Lies on the nodes it locks; the halves of a node that is split both have it."""


class Copy:
    """A back-up on its way to the host (§3.5)."""

    def __init__(self, node: Node, lock: Lock) -> None:
        self.chain, self.pages, self.lock = node.chain(), list(node.pages), lock
        self.ended = False


class Tree:
    """The tree of a worker over its device pool and its host pool [page]."""

    def __init__(self, pools: tuple[int, int], page_size: int, rules: Any) -> None:
        self.device_pool, self.host_pool, self.page_size, self.rules = *pools, page_size, rules
        self.root = Node([], None)
        self.walks = 0
        self.now = 0
        self.own = 0  # device pages that belong to a request alone
        self.prefetching = 0  # host pages held for prefetches
        self.evicted, self.expired = [0, 0], [0, 0]
        self.start_copy: Callable[[Copy], None] = lambda copy: None
        self.ages = [0, 0]
        self.growth = 0
        self.plugins: dict[str, Any] = {"eviction": None, "retention": None}
        self.next_use: Callable[[Name], float] = lambda name: 0.0
        self.time_of: Callable[[range], int] = lambda positions: 0

    # -- what there is

    def nodes(self) -> Iterator[Node]:
        return iter(self.root.subtree()[1:])

    def device_held(self) -> int:
        return self.own + sum(len(node.pages) for node in self.nodes() if node.device)

    def host_held(self) -> int:
        return self.prefetching + sum(len(node.pages) for node in self.nodes() if node.host)

    @property
    def free(self) -> int:
        return self.device_pool - self.device_held()

    @property
    def host_free(self) -> int:
        return self.host_pool - self.host_held()

    @property
    def evictable(self) -> int:
        return sum(len(node.pages) for node in self.nodes() if node.device and not node.device_locks)

    def look(self, names: Sequence[Name]) -> tuple[int, int]:
        """Return what a match would find (d, h), without being one."""
        node, at, found = self.root, 0, [0, 0]
        while at < len(names) and names[at] in node.children:
            node = node.children[names[at]]
            same = common(node.pages, names[at:])
            found[0 if node.device else 1] += same
            at += same
            if same < len(node.pages):
                break
        return found[0], found[1]

    # -- walks (§3.2, §3.3)

    def split(self, node: Node, at: int) -> Node:
        """Make the first `at` pages of `node` its new parent, and return that."""
        front = Node(node.pages[:at], node.parent)
        front.device, front.host, front.hits = node.device, node.host, node.hits
        front.walk, front.time, front.made, front.priority = node.walk, node.time, node.made, list(node.priority)
        front.longest, front.born, front.life = node.longest, node.born, node.life
        front.device_locks, front.host_locks = set(node.device_locks), set(node.host_locks)
        front.parent.children[front.pages[0]] = front
        node.pages, node.parent = node.pages[at:], front
        front.children[node.pages[0]] = node
        return front

    def walk(self, names: Sequence[Name], prompt: int) -> list[Node]:
        """Walk along `names`, of a prompt of so many tokens, as far as the tree goes; return the nodes passed."""
        self.walks += 1
        seen = max(prompt, len(names) * self.page_size)  # of an answer, too
        node, at, passed = self.root, 0, []
        while at < len(names) and names[at] in node.children:
            node = node.children[names[at]]
            same = common(node.pages, names[at:])
            if same < len(node.pages):
                node = self.split(node, same)
            node.walk, node.time, node.longest = self.walks, self.now, max(node.longest, seen)
            passed.append(node)
            at += same
        return passed

    def match(self, names: Sequence[Name], prompt: int) -> tuple[list[Node], list[Node]]:
        """Return the nodes passed on the device, and those on the host alone after them."""
        passed = self.walk(names, prompt)
        on_device = [node for node in passed if node.device]
        assert on_device == passed[: len(on_device)]
        return on_device, passed[len(on_device) :]

    def insert(self, request: Any, n: int, counting: bool) -> None:
        """Insert the first `n` pages of `request` (§3.3)."""
        if n == 0:
            return
        passed = self.walk(request.chain[:n], request.prompt)
        at = 0
        for node in passed:
            fresh = max(0, at + len(node.pages) - max(at, request.shared))
            if node.device:
                node.hits += counting
                self.give_up(request, fresh)  # duplicates
            else:
                assert fresh == len(node.pages)
                node.device = True
                self.hand_over(request, fresh)
            at += len(node.pages)
        if at < n:
            assert at >= request.shared
            new = self.add(passed, request.chain[at:n], request.prompt)
            new.device, new.hits = True, int(counting)
            self.hand_over(request, n - at)
            passed.append(new)
        lock = self.lock(passed[-1])
        self.unlock(request.lock)
        request.lock, request.shared = lock, n
        if counting and self.rules.write in ("write_through", "write_through_selective"):
            for node in passed:
                on_host = node.parent.host or node.parent is self.root
                if node.device and not node.host and node.hits >= self.rules.threshold and on_host:
                    self.back_up(node)

    def insert_host(self, names: Sequence[Name], begin: int, prompt: int) -> range:
        """Insert pages ``begin…`` of `names`, fetched from L3, on the host alone; return those that are new (§9)."""
        if begin == len(names):
            return range(0)
        passed = self.walk(names, prompt)
        at = sum(len(node.pages) for node in passed)
        on_host = passed[-1].host if passed else True
        if at < begin or not on_host or at == len(names):
            return range(0)
        new = self.add(passed, list(names[at:]), prompt)
        new.host = True
        self.release(new, 1)
        return range(at, len(names))

    def add(self, passed: list[Node], pages: list[Name], prompt: int) -> Node:
        """Return a new node at the end of a walk."""
        new = Node(list(pages), passed[-1] if passed else self.root)
        new.parent.children[pages[0]] = new
        new.walk = new.made = self.walks
        new.time = new.born = self.now
        new.longest = max(prompt, len(new.chain()) * self.page_size)
        return new

    def hand_over(self, request: Any, pages: int) -> None:
        """Turn own pages of `request` into pages of the tree."""
        request.own -= pages
        self.own -= pages
        assert request.own >= 0

    give_up = hand_over
    """Own pages that are freed leave the request in the same way."""

    def take(self, request: Any, pages: int) -> None:
        """Give `request` own pages."""
        assert pages <= self.free, "a page is given that is not there"
        request.own += pages
        self.own += pages

    def load_back(self, nodes: list[Node], g: int) -> Node:
        """Bring the first `g` pages of `nodes` to the device; return the last node of them."""
        for node in nodes:
            if g == 0:
                break
            if len(node.pages) > g:
                node = self.split(node, g)
            assert node.host and not node.device
            node.device = True
            g -= len(node.pages)
            last = node
        assert g == 0 and self.free >= 0
        return last

    # -- locks

    def lock(self, node: Node | None) -> Lock:
        """Lock `node` (None: the root) and all its ancestors on the device."""
        lock = Lock()
        for above in node.ancestors() if node else []:
            assert above.device
            above.device_locks.add(lock)
        return lock

    def host_lock(self, nodes: Sequence[Node]) -> Lock:
        lock = Lock()
        for node in nodes:
            node.host_locks.add(lock)
        return lock

    def unlock(self, lock: Lock | None) -> None:
        for node in self.nodes():
            if lock in node.device_locks:
                node.device_locks.remove(lock)
                if not node.device_locks:
                    self.release(node, 0)
            node.host_locks.discard(lock)

    # -- eviction (§3.4)

    def release(self, node: Node, tier: int) -> None:
        """Give `node`, which may go from this tier from now on, its priority (``gdsf``), and let it be asked for."""
        node.life = None
        n, end = len(node.pages), len(node.chain())
        whole = self.time_of(range((end - n) * self.page_size, end * self.page_size))
        node.priority[tier] = self.ages[tier] + node.hits * max(1, whole // n)

    def is_surplus(self, node: Node) -> bool:
        """Return whether the first page of `node` is beyond what its conversations need (``tlru``)."""
        before = len(node.chain()) - len(node.pages)
        return before * self.page_size >= max(0, node.longest + self.growth - self.rules.xi_tokens)

    def next_victim(self, nodes: list[Node], tier: int) -> Node:
        """Return which of `nodes` goes first from the device (0) or the host (1)."""
        keys: dict[str, Callable[[Node], float]] = {
            "lru": lambda node: 0,
            "fifo": lambda node: node.made,
            "lfu": lambda node: node.hits,
            "gdsf": lambda node: node.priority[tier],
            "tlru": lambda node: 0 if self.is_surplus(node) else 1,
            "belady": lambda node: -self.next_use(node.pages[0]),
        }
        plugin = self.plugins["eviction"]
        rank = (lambda node: plugin.decide(self.seen(node, tier))) if plugin else keys[self.rules.eviction]
        victim = min(nodes, key=lambda node: (rank(node), node.walk))
        self.ages[tier] = max(self.ages[tier], victim.priority[tier])
        return victim

    def evict(self, tokens: int) -> int:
        """Free at least `tokens` of the device, if there are as many; return the pages copied to the host."""
        freed = copied = 0
        while freed * self.page_size < tokens:
            leaves = [
                node
                for node in self.nodes()
                if node.device and not node.device_locks and not any(child.device for child in node.children.values())
            ]
            if not leaves:
                break
            node = self.next_victim(leaves, 0)
            freed += len(node.pages)
            self.evicted[0] += len(node.pages)
            if not node.host and self.rules.write == "write_back":
                if self.host_free < len(node.pages):
                    self.evict_host(len(node.pages) * self.page_size)
                if self.host_free >= len(node.pages):
                    node.host = True
                    copied += len(node.pages)
            node.device = False
            if node.host:
                self.release(node, 1)
            else:
                assert self.rules.write == "write_back" or not node.children
                for below in node.subtree():
                    assert not below.host_locks
                    self.evicted[1] += len(below.pages) * below.host
                self.remove(node)
        return copied

    def evict_host(self, tokens: int) -> None:
        freed = 0
        while freed * self.page_size < tokens:
            leaves = [
                node
                for node in self.nodes()
                if node.host and not node.device and not node.host_locks and not node.children
            ]
            if not leaves:
                break
            node = self.next_victim(leaves, 1)
            freed += len(node.pages)
            self.evicted[1] += len(node.pages)
            self.remove(node)

    def remove(self, node: Node) -> None:
        assert not node.device_locks and not node.host_locks
        del node.parent.children[node.pages[0]]

    def back_up(self, node: Node) -> None:
        size = len(node.pages)
        if self.host_free < size:
            self.evict_host(size * self.page_size)
        if self.host_free >= size:
            node.host = True
            self.start_copy(Copy(node, self.lock(node)))

    def seen(self, node: Node, tier: int) -> IdleContext:
        """Return what a policy of a file sees of `node`, which may go from a tier (§3.4, §3.6)."""
        n, end = len(node.pages), len(node.chain())
        positions = range((end - n) * self.page_size, end * self.page_size)
        return IdleContext(
            tier=tier, segment_pages=n, resident_pages=n, position_pages=end - n, uses=node.hits,
            released_seconds=node.time * 1e-12, born_seconds=node.born * 1e-12,
            compute_seconds=self.time_of(positions) * 1e-12, page_size=self.page_size, seconds=self.now * 1e-12,
        )  # fmt: skip

    def expire(self, age: int) -> None:
        """Delete what was not walked for `age` [ps], or for as long as the policy of a file says (§3.6)."""
        plugin = self.plugins["retention"]
        for node in self.nodes():
            if not plugin:
                node.life = age
            elif node.life is None and not node.device_locks:
                node.life = lifetime(plugin.decide(self.seen(node, 0 if node.device else 1)))
        while old := [
            node
            for node in self.nodes()
            if not (node.device_locks or node.host_locks or node.children) and node.time + node.life <= self.now
        ]:
            for node in old:
                self.expired[0] += len(node.pages) * node.device
                self.expired[1] += len(node.pages) * node.host
                self.remove(node)

    # -- what must always hold

    def check(self) -> None:
        assert self.own >= 0 and self.prefetching >= 0
        assert self.device_held() <= self.device_pool and self.host_held() <= self.host_pool
        for node in self.nodes():
            parent = node.parent
            top = parent is self.root
            assert node.pages and (node.device or node.host)
            assert parent.children[node.pages[0]] is node
            assert top or parent.device or not node.device, "device not closed"
            assert top or parent.device_locks >= node.device_locks, "a lock without its ancestors"
            assert not node.device_locks or node.device
            if self.rules.write != "write_back":
                assert top or parent.host or not node.host, "host not closed"
            assert node.made <= node.walk <= self.walks
            assert top or parent.walk >= node.walk

    def pages(self) -> dict[Name, tuple[bool, bool, int, int]]:
        """Return of each page whether it is on the device, on the host, and how many locks of each it has."""
        return {
            name: (node.device, node.host, len(node.device_locks), len(node.host_locks))
            for node in self.nodes()
            for name in node.pages
        }


class PageSet:
    """Pages of chains, closed towards the root, with a capacity [page] (§10)."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.number = 0
        self.marks: dict[Name, int] = {}
        self.depth: dict[Name, int] = {}
        self.before: dict[Name, Name] = {}  # the page before each, None for the first
        self.pins: dict[Any, list[Name]] = {}

    def __len__(self) -> int:
        return len(self.marks)

    def leading(self, names: Sequence[Name]) -> int:
        return next((i for i, name in enumerate(names) if name not in self.marks), len(names))

    def add(self, names: Sequence[Name]) -> None:
        """Add or touch these leading pages of a chain, making room page by page."""
        self.number += 1
        for depth, name in enumerate(names):
            if name not in self.marks and len(self.marks) >= self.capacity:
                pinned = {page for pages in self.pins.values() for page in pages}
                old = [page for page, mark in self.marks.items() if mark < self.number and page not in pinned]
                if not old:
                    break
                gone = min(old, key=lambda page: (self.marks[page], -self.depth[page]))
                del self.marks[gone], self.depth[gone]
            self.marks[name], self.depth[name] = self.number, depth
            self.before[name] = names[depth - 1] if depth else None

    def check(self) -> None:
        assert len(self.marks) <= self.capacity
        for name in self.marks:
            before = self.before[name]
            assert before is None or self.marks[before] >= self.marks[name], "not closed"
        assert all(name in self.marks for chain in self.pins.values() for name in chain)


def common(one: Sequence[Name], other: Sequence[Name]) -> int:
    """Return how many pages `one` and `other` begin with alike."""
    n = 0
    while n < min(len(one), len(other)) and one[n] == other[n]:
        n += 1
    return n
