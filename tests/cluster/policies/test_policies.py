"""Gateway and eviction policies that have parameters or look ahead, on cases that can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import kvsweep
from kvsweep.cluster.inputs.config import ClusterConfig
from kvsweep.cluster.policies.eviction import POLICIES as EVICTIONS
from kvsweep.trace.model import Trace
from tests.cluster.samples import cluster, pages, profile, trace


def run(requests: list[Any], config: ClusterConfig) -> xr.Dataset:
    return kvsweep.cluster.run(trace(requests), config, profile(), check=True)


def by_cost(**figures: Any) -> dict[str, Any]:
    return {"policy": "kv_cost", **figures}


def test_workers_that_cost_the_same_are_drawn() -> None:
    idle = [(10.0 * i, 1000, 1, ()) for i in range(30)]
    drawn, random = (
        run(idle, cluster({"count": 3}, {"count": 2}, gateway={"policy": policy, "seed": 5}))
        for policy in ("kv_cost", "random")
    )
    assert len(set(random["prefill_worker"].values)) == 3
    assert drawn["prefill_worker"].equals(random["prefill_worker"])
    assert drawn["decode_worker"].equals(random["decode_worker"])


def test_a_prompt_follows_its_prefix_until_the_queue_there_costs_more() -> None:
    """16 pages each, 15 of them cached at one worker: 17 there and 32 elsewhere, 49 there with one ahead of it."""
    burst = [(0.0, 1000, 1, pages(0, 15))] + [(10.0, 1000, 1, pages(0, 15))] * 4
    found = run(burst, cluster({"count": 2}, gateway=by_cost()))["prefill_worker"].values
    first = found[0]
    assert found.tolist() == [first, first, 1 - first, first, 1 - first]
    # Where prompts to be computed weigh nothing, what is cached does not either: 16 pages on each, then in turn.
    found = run(burst, cluster({"count": 2}, gateway=by_cost(prefill_load_scale=0.0)))["prefill_worker"].values
    assert found[1] != found[2] and found[3] != found[4]


@pytest.mark.parametrize(("credit", "follows"), [(1.0, True), (0.0, False)])
def test_pages_on_the_host_count_by_their_credit(credit: float, follows: bool) -> None:
    """A prompt is pushed off the device by one that fills it, and asked for beside a page of work at its worker."""
    other = [(1.0, 1024, 1, pages(100, 16)), (1.0, 1024, 1, pages(200, 16))]
    requests = [(0.0, 1000, 1, pages(0, 15)), *other, (5.0, 64, 1, ()), (5.0, 64, 1, ()), (5.0, 1000, 1, pages(0, 15))]
    gateway = by_cost(device_credit=0.0, host_credit=credit, seed=3)
    config = cluster({"count": 2, "device_tokens": 16 * 64}, gateway=gateway)
    ds = run(requests, config)
    assert sorted(ds["prefill_worker"].values[1:3]) == [0, 1]
    if follows:
        assert ds["prefill_worker"].values[5] == ds["prefill_worker"].values[0]
        assert ds["hit_tokens"].values[5].tolist() == [0, 960, 0]
    else:
        random = cluster({"count": 2, "device_tokens": 16 * 64}, gateway={"policy": "random", "seed": 3})
        assert ds["prefill_worker"].values[5] == run(requests, random)["prefill_worker"].values[5]


@pytest.mark.parametrize(("weight", "third"), [(0.0, "few pages"), (1000.0, "few requests")])
def test_decode_workers_are_chosen_by_pages_and_requests_in_progress(weight: float, third: str) -> None:
    # One of 100 pages on one worker, two of 1 page each on the other.
    requests = [(0.0, 6400, 900, ()), (0.0, 64, 900, ()), (0.001, 64, 900, ()), (0.002, 64, 900, ())]
    found = run(requests, cluster({}, {"count": 2}, gateway=by_cost(active_weight=weight)))["decode_worker"].values
    large, small = found[0], found[1]
    assert large != small
    # With a weight on requests the third finds one on each and less pages on the small side; the fourth does not.
    assert found[2] == small and found[3] == (small if third == "few pages" else large)


@pytest.mark.parametrize("policy", ["belady", "gdsf"])
@pytest.mark.parametrize("seed", range(20))
def test_hits_of_a_lone_worker_are_those_of_a_cache_of_pages(seed: int, policy: str) -> None:
    """Requests far apart in time, page by page: no segments, no lists, no events."""
    made, pool = families(seed)
    assert hits(made, pool, policy) == cached(made, pool, policy)


def test_no_policy_beats_the_oracle() -> None:
    for seed in range(20):
        made, pool = families(seed)
        found = {policy: sum(hits(made, pool, policy)) for policy in EVICTIONS}
        assert max(found.values()) == found["belady"], (seed, found)


def families(seed: int) -> tuple[Trace, int]:
    """Return prompts that part here and there, far apart in time, and a number of pages that is too few for them."""
    rng = np.random.default_rng(seed)
    shared = [rng.integers(0, 2, 8).tolist() for _ in range(4)]
    requests = []
    for i in range(60):
        steps = shared[rng.integers(4)][: rng.integers(0, 9)]
        ids = [int("1" + "".join(map(str, steps[: k + 1])), 2) for k in range(len(steps))]
        requests.append((10.0 * i, max(1, 4 * len(ids) + int(rng.integers(0, 4))), 1, ids))
    return trace(requests, page=4), int(rng.integers(10, 20))


SLOWER = {"boundary": "b", "token_seconds": 1e-6, "token_pair_seconds": 1e-6}
"""Late pages are dearer to compute than early ones."""


def hits(made: Trace, pool: int, policy: str) -> list[int]:
    own = {"device_tokens": 4 * pool, "host_tokens": 0, "chunk_tokens": 64}
    config = cluster(own, page_size=4, eviction={"policy": policy})
    ds = kvsweep.cluster.run(made, config, profile(4, prefill=SLOWER), check=True)
    return [int(found) for found in ds["hit_tokens"].values[:, 0]]


def cached(made: Trace, pool: int, policy: str) -> list[int]:
    """Return the hit tokens of each request in a cache of `pool` pages of 4 tokens."""
    chains = [
        made.blocks[made.offsets[i] : made.offsets[i + 1]][: int(length) // 4].tolist()
        for i, length in enumerate(made.input_tokens)
    ]
    users = {page: [i for i, chain in enumerate(chains) if page in chain] for chain in chains for page in chain}
    cost: dict[int, int] = {}
    for chain in chains:
        for page in chain:
            places = [place for place, other in enumerate(chain) if users[other] == users[page]]
            begin, end = 4 * places[0], 4 * (places[-1] + 1)
            cost[page] = (10**6 * (end - begin) + 10**6 * (end * end - begin * begin) // 2) // len(places)
    age, found, clock = 0, [], 0
    released: dict[int, int] = {}
    uses: dict[int, int] = {}
    priority: dict[int, int] = {}

    def rank(page: int) -> tuple[float, int]:
        coming = [i for i in users[page] if i > len(found)]
        return (priority[page] if policy == "gdsf" else -min(coming, default=10**9)), released[page]

    for length, chain in zip(made.input_tokens.tolist(), chains, strict=True):
        matched = 0
        while matched < min(len(chain), (length - 1) // 4) and chain[matched] in released:
            matched += 1
        need = -(-length // 4) - sum(1 for page in chain if page in released)
        for page in chain:
            uses[page] = uses.get(page, 0) + 1
        while pool - len(released) < need:
            # The last pages of what they belong to: no page that is held follows them in any prompt.
            inner = {a for other in chains for a, b in zip(other, other[1:], strict=False) if b in released}
            victim = min((page for page in released if page not in chain and page not in inner), key=rank)
            age = max(age, priority[victim])
            del released[victim]
        for page in reversed(chain):
            clock += 1
            released[page], priority[page] = clock, age + uses[page] * cost[page]
        found.append(4 * matched)
    return found
