"""Gateway and eviction policies that have parameters or look ahead, on cases that can be worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import xarray as xr
from cluster_samples import cluster, pages, profile, trace

import kvsweep
from kvsweep.cluster.config import ClusterConfig


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
