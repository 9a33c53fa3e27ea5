"""Random small clusters and traces for the twins of the engines' rules."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any

from kvsweep.cluster.inputs.service_profile import Profile, parse_profile
from kvsweep.trace.model import Trace
from tests.cluster.engine import core as engine_core
from tests.cluster.engine import naive as naive_engine
from tests.cluster.engine.naive import L3, Group, Rules
from tests.cluster.samples import path, trace

Run = Callable[[Trace, Rules, Profile], dict[str, Any]]
RUNS: dict[str, Run] = {"core": engine_core.run, "twin": naive_engine.run}
"""What computes a run; equal in what `naive_engine.run` returns but for ``sim``."""


def pd(prefill: dict[str, Any] | None = None, decode: dict[str, Any] | None = None, **changes: Any) -> Rules:
    """Return one prefill and one decode worker of ample pools, with changes."""
    source = {"device_tokens": 262_144, "host_tokens": 524_352, **(prefill or {})}
    return Rules(
        [Group("prefill", **source), Group("decode", **{"device_tokens": 262_144, **(decode or {})})], **changes
    )


GATEWAYS = ("round_robin", "random", "least_loaded", "power_of_two", "session_affinity", "cache_aware", "kv_cost")
RETRIEVALS = (
    "default_policy", "default_policy", "default_policy", "default_policy",
    "all_compute", "performance_aware", "slowest_tier_first", "half_of_the_front",
)  # fmt: skip


def random_trace(rng: random.Random, page: int, chunk: int) -> Trace:
    """Return up to 24 requests: shared prefixes, sessions of several turns, equal prompts at one instant, bursts.

    Prompts end at a page, beside one, or at a multiple of the chunk; names end before, at or after the last full page.
    """
    depth, variety = rng.choice(((2, 2), (7, 2), (7, 5)))
    families = [[rng.randrange(variety) for _ in range(rng.randint(depth, 9))] for _ in range(rng.randint(1, 5))]
    pauses = rng.choice([(0.0,), (0.0, 0.0, 0.001, 0.013, 0.4), (0.002, 0.03), (0.05, 0.1, 0.3)])
    names: dict[tuple[int, ...], int] = {}
    requests: list[tuple[float, int, int, list[int]]] = []
    sessions: list[int] = []
    turns: dict[int, list[int]] = {}
    time = 0.0
    for _ in range(rng.randint(1, 24)):
        time += rng.choice(pauses)
        session = rng.randint(0, 3)
        kind = rng.random()
        if kind < 0.15 and requests:  # the same prompt again, now or a little later
            _, n_input, n_output, ids = requests[-1]
            requests.append((time if rng.random() < 0.3 else requests[-1][0], n_input, n_output, ids))
            time = requests[-1][0]
            sessions.append(sessions[-1])
            continue
        if kind < 0.4:  # the next turn of a session: what it had, and more
            before = turns.get(session, [])
            key = tuple(-1 - place for place in before)
            ids = list(before)
            for _ in range(rng.randint(1, 3)):
                key = (*key, session, len(ids))
                ids.append(names.setdefault(key, len(names)))
            turns[session] = ids if len(ids) < 12 else []
        else:
            family = rng.choice(families)
            chosen = [tuple(family[: i + 1]) for i in range(min(len(family), rng.randint(0, 12)))]
            ids = [names.setdefault(prefix, len(names)) for prefix in chosen]
        n_input = page * len(ids) + rng.choice((0, 0, 1, -1, rng.randint(0, 3 * page)))
        if rng.random() < 0.1:
            n_input = chunk * rng.randint(1, 3 if chunk <= 32 else 1)
        requests.append((time, max(1, n_input), rng.choice((1, 2, rng.randint(1, 12), rng.randint(1, 30))), ids))
        sessions.append(session)
    thinks = [rng.choice((math.nan, 0.0, 0.001, 0.02)) for _ in requests] if rng.random() < 0.5 else None
    return trace(requests, page=page, sessions=sessions if rng.random() < 0.8 else None, thinks=thinks)


def random_groups(rng: random.Random, page: int, chunk: int) -> list[Group]:
    most = rng.choice((page, chunk, 3 * page + 1, 10 * chunk, 10 * chunk))
    reserve = rng.choice((0, 1, page, 3 * page))

    def worker(role: str) -> Group:
        device = rng.choice((6, 10, 13, 20, 30))
        return Group(
            role, device_tokens=page * device + rng.randrange(page),
            host_tokens=page * rng.choice((0, 4, device, 2 * device, 60)), chunk_tokens=chunk,
            max_prefill_tokens=most,
            max_running=rng.choice((1, 2, 3, 6, 40)),
            reserved_decode_tokens=reserve,
            graph_buckets=rng.choice(((1, 2, 4), (2,), (4, 8))),
        )  # fmt: skip

    if rng.random() < 0.4:
        return [worker("colocated") for _ in range(rng.choice((1, 1, 2)))]
    prefill = [worker("prefill") for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    decode = [worker("decode") for _ in range(rng.randint(1, 2))]
    for group in decode:
        group.device_tokens = page * rng.randint(12, 30)
    return prefill + decode


def random_rules(rng: random.Random, page: int, chunk: int) -> Rules:
    """Return a cluster with tight pools and any policies."""
    rules = Rules(
        groups=random_groups(rng, page, chunk), page_size=page, gateway=rng.choice(GATEWAYS), seed=rng.randrange(5),
        balance_requests=rng.choice((0, 2, 32)), balance_ratio=rng.choice((1.0, 1.5)),
        match_ratio=rng.choice((0.0, 0.3, 0.5)), tree_tokens=page * rng.choice((5, 20, 1000)),
        eviction=rng.choice(("lru", "lru", "fifo", "lfu", "gdsf", "belady", "tlru", "mixed")),
        retrieval=rng.choice(RETRIEVALS),
        xi_tokens=page * rng.choice((0, 1, 3, 8)), growth_tokens=rng.choice((None, 0, page)),
        ttl=(rng.choice((0.01, 0.1, 0.4)), rng.choice((0.003, 0.01, 0.1))) if rng.random() < 0.35 else None,
        retention_file=rng.choice(("", "", "moody")), rate_window_seconds=rng.choice((0.05, 60.0)),
        ttft_seconds=rng.choice((0.003, 0.01, 1.0)),
        write=rng.choice(("write_through", "write_through", "write_through_selective", "write_back", "none")),
        overlap=rng.random() < 0.6, schedule=rng.choice(("fcfs", "fcfs", "lpm")),
        load_back_threshold=rng.choice((1, 10, 3 * page)), router_join=rng.random() < 0.7,
        sharing=rng.choice(("processor_sharing", "processor_sharing", "none", "fifo")),
        prebuilt=rng.choice((0, 0, 10**9, 777_777_777)), n_layers=rng.choice((1, 2, 7)),
        conservativeness=rng.choice((0.3, 1.0, 2.0)), prefill_load_scale=rng.choice((0.5, 1.0)),
        window_seconds=0.05, host_credit=rng.choice((0.75, 0.1)),
        disk_credit=rng.choice((0.25, 0.0)), active_weight=rng.choice((0.0, 3.0)),
    )  # fmt: skip
    rules.threshold = 2 if rules.write == "write_through_selective" else rng.choice((1, 1, 1, 2))
    if rules.write in ("write_through", "write_through_selective") and rng.random() < 0.5:
        rules.l3 = random_l3(rng, page)
    return rules


def random_l3(rng: random.Random, page: int) -> L3:
    slower = rng.choice((1, 20, 500))
    return L3(
        pool_tokens=page * rng.choice((5, 12, 40, 1000, 1000)),
        stop=rng.choice(("best_effort", "wait_complete", "timeout")),
        prefetch_threshold=rng.choice((1, 1, 2 * page, 4 * page)),
        timeout_base=rng.choice((0, 10**9, 5 * 10**9)), timeout_per_1024=rng.choice((0, 10**10, 10**12)),
        query=rng.choice((10**6, 10**9, 123_456_789)), read=(slower * 10**9, 10**9 * slower),
        write=(slower * 10**9, 5 * 10**8 * slower), batch_pages=rng.choice((1, 2, 3, 128)),
    )  # fmt: skip


def random_profile(rng: random.Random, kv_bytes: float = 20_000.0) -> Profile:
    """Return odd figures, where nothing coincides by chance, or round ones, where much happens at one instant."""
    if rng.random() < 0.5:
        step = {"fixed_seconds": 1.1e-3, "token_seconds": 1.3e-4, "token_pair_seconds": 1.7e-6, "least_seconds": 1.9e-3}
        base, per_token, (setup, rate) = [1.1e-3, 1.2e-3, 1.5e-3], [1e-6, 1e-6, 2e-6], (7e-4, 74e6)
    else:
        step = {"fixed_seconds": 0.0, "token_seconds": 1e-3}
        base, per_token, (setup, rate) = [1e-3] * 3, [0.0] * 3, (rng.choice((0.0, 1e-3)), 20e6)
    slower = rng.choice((1, 3, 20))
    values: dict[str, Any] = {
        "name": "fuzzed", "tp": 1, "kv_bytes_per_token": kv_bytes, "prefill": {"boundary": "whole", **step},
        "decode": {"boundary": "whole", "batch": [1, 2, 4], "base_seconds": base, "context_token_seconds": per_token},
        "handoff": path(setup_seconds=setup, bytes_per_s=rate * 2), "h2d": path(bytes_per_s=rate * 3 / slower),
        "d2h": path(setup_seconds=setup / 2, bytes_per_s=rate * 4 / slower),
    }  # fmt: skip
    return parse_profile(values, "fuzzed")


def churned(rng: random.Random, page: int, case: tuple[Trace, Rules]) -> tuple[Trace, Rules]:
    """Few long prompts in turn, at leisure, over a device that holds one or two: what comes again is further down."""
    rules = case[1]
    names = [list(range(100 * f, 100 * f + rng.randint(5, 9))) for f in range(rng.randint(2, 5))]
    shared = rng.randint(0, 3)
    time, requests = 0.0, []
    for _ in range(rng.randint(6, 24)):
        family = rng.choice(names)
        ids = [k if k < shared else family[k] + 1000 for k in range(rng.randint(len(family) - 2, len(family)))]
        requests.append((time, page * len(ids) + rng.randint(0, page), rng.choice((1, 2, 5)), ids))
        time += rng.choice((0.0, 0.02, 0.1, 0.5))
    for group in rules.groups:
        group.max_prefill_tokens = 100 * page
        if group.role != "decode":
            group.device_tokens = page * rng.choice((12, 12, 16, 20))
            group.host_tokens = page * rng.choice((16, 24, 40, 80))
    rules.ttl, rules.load_back_threshold = None, 1
    return trace(requests, page=page), rules


def with_l3(rng: random.Random, page: int, case: tuple[Trace, Rules]) -> tuple[Trace, Rules]:
    """The same over a host that is hardly larger, often of two workers, each of which finds what the other wrote."""
    found, rules = churned(rng, page, case)
    first = next(group for group in rules.groups if group.role != "decode")
    first.host_tokens = first.device_tokens + page * rng.choice((2, 4, 8, 20))
    copies = [dataclasses.replace(first) for _ in range(rng.choice((1, 2, 2)))]
    rules.groups = copies + [group for group in rules.groups if group.role == "decode"]
    rules.gateway = rng.choice(("round_robin", "random", "power_of_two"))
    rules.write, rules.threshold, rules.l3 = "write_through", 1, random_l3(rng, page)
    return found, rules


def pressed(rng: random.Random, page: int, case: tuple[Trace, Rules]) -> tuple[Trace, Rules]:
    """Short prompts and long answers in little room: retraction."""
    rules = case[1]
    requests, time = [], 0.0
    for _ in range(rng.randint(4, 20)):
        ids = list(range(rng.randint(0, 3)))
        requests.append((time, max(1, page * len(ids) + rng.randint(0, page)), rng.randint(page, 9 * page), ids))
        time += rng.choice((0.0, 0.0, 0.001, 0.01))
    reserve = rng.choice((0, 1, page))
    for group in rules.groups:
        group.max_running, group.reserved_decode_tokens = rng.choice((3, 6, 40)), reserve
        if group.role != "prefill":
            group.device_tokens = page * rng.randint(14, 22)
    return trace(requests, page=page), rules


def lengthy(rng: random.Random, case: tuple[Trace, Rules]) -> tuple[Trace, Rules]:
    """Prompts of hundreds of small pages, so that L3 works in several batches."""
    page, rules = rng.choice((1, 2)), case[1]
    families = [list(range(1000 * f, 1000 * f + 420)) for f in range(rng.randint(1, 3))]
    requests, time = [], 0.0
    for _ in range(rng.randint(3, 12)):
        ids = rng.choice(families)[: rng.choice((120, 128, 129, 250, 256, 300, 400))]
        requests.append((time, page * len(ids) + rng.randint(0, page), rng.choice((1, 2, 5)), ids))
        time += rng.choice((0.0, 0.02, 0.5, 3.0))
    rules.page_size = page
    for group in rules.groups:
        group.device_tokens, group.host_tokens = (
            page * rng.choice((450, 600, 900)),
            page * rng.choice((700, 1200, 2000)),
        )
        group.chunk_tokens, group.max_prefill_tokens = page * rng.choice((64, 100, 512)), 10_000
    rules.ttl, rules.load_back_threshold, rules.tree_tokens = None, 1, 500 * page
    if rng.random() < 0.7:
        rules.write, rules.threshold, rules.l3 = "write_through", 1, random_l3(rng, page)
        rules.l3.stop = rng.choice(("best_effort", "wait_complete", "wait_complete", "timeout"))
        rules.l3.pool_tokens, rules.l3.prefetch_threshold = page * rng.choice((300, 500, 2000)), 1
        first = rules.groups[0]
        rules.groups = [first, dataclasses.replace(first), *(g for g in rules.groups if g.role == "decode")]
        rules.gateway = rng.choice(("round_robin", "random", "power_of_two"))
    return trace(requests, page=page), rules


def random_case(seed: int) -> tuple[Trace, Rules, Profile]:
    rng = random.Random(seed)
    page = rng.randint(1, 8)
    chunk = page * rng.choice((1, 2, 4, 16))
    case = random_trace(rng, page, chunk), random_rules(rng, page, chunk)
    mood = rng.random()
    if mood < 0.2:
        case = churned(rng, page, case)
    elif mood < 0.4:
        case = with_l3(rng, page, case)
    elif mood < 0.6:
        case = pressed(rng, page, case)
    elif mood < 0.66:
        return *lengthy(rng, case), random_profile(rng, 200.0)
    found, rules = case
    rules.closed = bool((found.turn > 0).any()) and rng.random() < 0.3
    rules.think_seconds = rng.choice((None, None, 0.0, 0.005))
    return found, rules, random_profile(rng)
