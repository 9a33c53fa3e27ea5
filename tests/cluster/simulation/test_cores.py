"""The core of the cluster simulator on small random clusters of tight pools: conservation, and the same everywhere."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvsweep.cluster.inputs.config import ClusterConfig, parse_config
from kvsweep.cluster.inputs.profiles import find_profile
from kvsweep.cluster.inputs.step_profile import read_step_profile
from kvsweep.cluster.paper.loop import advance
from kvsweep.cluster.paper.segment_table import entry_at, new_entry
from kvsweep.cluster.setup.initial_state import initial_state
from kvsweep.cluster.setup.vllm import initial_fleet, resolved
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.segments import chains
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.simulation.cores import checked_run, compiled_run, looks_every, plain_run
from kvsweep.policies.registry import Policy
from kvsweep.trace.convert import change_block_size
from kvsweep.trace.model import Trace
from tests.cluster.samples import POLICIES, cluster, clusters, fuzz_profile, pages, profile, traces
from tests.cluster.samples import trace as trace_of

SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def begin(trace: Trace, config: ClusterConfig) -> tuple[State, Policy]:
    policy = POLICIES[config.retrieval.policy]
    return initial_state(trace, config, fuzz_profile(), policy), policy


@settings(SLOW, max_examples=300)
@given(traces(), clusters())
def test_the_checked_rules_hold_and_every_request_ends(trace: Trace, config: ClusterConfig) -> None:
    state = checked_run(*begin(trace, config))
    served = state.request[state.request[:, col.REJECTED] == 0]
    assert (served[:, col.FINISHED] > 0).all()
    hits = (served[:, col.MATCHED] + served[:, col.RETRIEVED]) * config.page_size
    assert (hits < served[:, col.PROMPT]).all() and (served[:, col.TO_DO] == 0).all()
    order = (col.ARRIVAL, col.ADMITTED, col.READY, col.BEGAN, col.PREFILLED, col.HANDED, col.JOINED, col.FIRST_TOKEN)
    assert (np.diff(served[:, [*order, col.FINISHED]], axis=1) >= 0).all()
    # All that is left is idle: nothing is reserved, pinned or promised.
    own = state.prefill
    assert (own[:, col.FREE] + own[:, col.IDLE] == own[:, col.POOL]).all()
    assert (own[:, col.HOST_FREE] + own[:, col.HOST_IDLE] == own[:, col.HOST_POOL]).all()
    assert not state.decode[:, [col.PROMISED, col.HELD, col.CONTEXT]].any()
    assert not state.decode[:, [col.LOAD, col.LOAD_PAGES]].any()
    assert not own[:, [col.LOAD, col.LOAD_PAGES, col.PREFILL_PAGES]].any()
    assert state.windows.sum() == served[:, col.OUTPUT].sum()
    assert own[:, col.RETRIEVED_PAGES].sum() == served[:, col.RETRIEVED].sum()
    assert own[:, col.SENT_PAGES].sum() == served[:, col.PAGES].sum() == state.decode[:, col.RECEIVED_PAGES].sum()
    # Pages in are pages that are resident, and those that left.
    gone = own[:, [col.HOST_EVICTED, col.HOST_EXPIRED]].sum(axis=1)
    assert (own[:, col.WRITTEN_PAGES] == own[:, col.HOST_IDLE] + gone).all()


def test_the_checker_looks_after_every_instant_of_what_is_small_and_less_often_at_more() -> None:
    """It goes over all blocks and requests each time: of thousands, after every instant, it came to no end."""
    looks = {}
    for n_requests, n_blocks in ((10, 1000), (500, 27_000), (5000, 1000)):
        made = trace_of([(float(i), 100, 2, pages(0, 6)) for i in range(n_requests)], page=16)
        config = parse_config({"workers": [{"role": "vllm", "tp": 1, "n_blocks": n_blocks}]}, "here")
        steps = read_step_profile(find_profile("h100-sxm-llama-3.1-8b"))
        looks[n_requests] = looks_every(initial_fleet(made, resolved(config, steps)[0], steps))
    assert looks == {10: 1, 500: 27, 5000: 6}


@settings(SLOW, max_examples=40)
@given(traces(), clusters())
def test_compiled_and_uncompiled_are_equal_to_the_last_bit(trace: Trace, config: ClusterConfig) -> None:
    compiled, again = compiled_run(*begin(trace, config)), compiled_run(*begin(trace, config))
    plain = plain_run(*begin(trace, config))
    for name, one, two, three in zip(State._fields, compiled, again, plain, strict=True):
        assert one.tobytes() == two.tobytes() == three.tobytes(), name


@settings(SLOW, max_examples=150)
@given(traces(), st.sampled_from((1, 2, 4, 8)))
def test_segments_are_the_pages_the_same_requests_contain(trace: Trace, page: int) -> None:
    found = chains(trace, page)
    paged = change_block_size(trace, page)
    owners: dict[object, set[int]] = {}
    prompts = []
    for i in range(len(trace)):
        full = int(trace.input_tokens[i]) // page
        named = paged.blocks[paged.offsets[i] : paged.offsets[i + 1]][:full].tolist()
        prompts.append([*named, *((i, place) for place in range(len(named), full))])
        for place in prompts[-1]:
            owners.setdefault(place, set()).add(i)
    segment_of: dict[object, int] = {}
    for i, prompt in enumerate(prompts):
        chain = found.chain[found.offsets[i] : found.offsets[i + 1]]
        runs: list[int] = []
        for k, place in enumerate(prompt):
            if k and owners[place] == owners[prompt[k - 1]]:
                runs[-1] += 1
            else:
                runs.append(1)
            assert segment_of.setdefault(place, chain[len(runs) - 1]) == chain[len(runs) - 1]
        assert found.length[chain].tolist() == runs
    assert len(set(segment_of.values())) == len(found.length)


def test_entries_are_found_again_among_many() -> None:
    """The hash table alone, filled to the last entry there can be, beside a dictionary."""
    made = trace_of([(0.01 * i, 64 * 20, 1, pages(20 * i, 20)) for i in range(2000)])
    s = initial_state(made, cluster(prefill={"count": 900}), profile(), POLICIES["default_policy"])
    rng = np.random.default_rng(1)
    known: dict[tuple[int, int], int] = {}
    while len(known) < len(s.entry):
        w, segment = (int(number) for number in rng.integers(0, (900, 2000)))
        found = entry_at(s, w, segment)
        assert found == known.get((w, segment), -1)
        if found < 0:
            known[w, segment] = new_entry(s, w, segment)
    assert sorted(known.values()) == list(range(len(s.entry)))
    assert all(entry_at(s, w, segment) == e for (w, segment), e in known.items())


def test_a_run_may_pause_at_any_instant() -> None:
    requests = [(0.01 * i, 1000 + i, 5, pages(0, 15)) for i in range(20)]
    policy = POLICIES["default_policy"]
    whole, pieces = (initial_state(trace_of(requests), cluster(), profile(), policy) for _ in range(2))
    assert advance(whole, 10**6, float) == col.DONE
    code = col.PAUSED
    while code == col.PAUSED:
        code = advance(pieces, 1, float)
    assert code == col.DONE
    assert all(np.array_equal(a, b) for a, b in zip(whole, pieces, strict=True))
