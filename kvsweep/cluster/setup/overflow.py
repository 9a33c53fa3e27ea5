"""Figures with which integers of a core would overflow, or its tables the memory; they are refused before a run.

Everything here is counted with integers that have no end. Why nothing in a core reaches 2^63: it forms times of events,
which are at most NEVER = 2^62 plus a duration, sums of durations, and the products of which a duration consists
(`clock.scaled` forms no others). Each of these is at most `LARGE` = 2^61 by the bounds below; what they bound is the
largest that a request which is served, a batch, a round or a copy can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.inputs.config import ClusterConfig, PrefillGroup
from kvsweep.cluster.inputs.service_profile import (
    PathModel,
    Profile,
    coefficients,
    decode_coefficients,
    path_coefficients,
)
from kvsweep.cluster.policies import write
from kvsweep.cluster.setup.closed_loop import PICO
from kvsweep.errors import InputError
from kvsweep.grid.evaluate import available_memory
from kvsweep.trace.model import Trace

LARGE = 1 << 61
SHARES = 256
"""Parts of a picosecond in which cores count what is left of a copy (`UNIT` there)."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The way of the copies of a path: `setup` [fs], `per_byte` [1e-18 s], the bytes of a page [byte]."""

    setup: int
    per_byte: int
    page_bytes: int

    def largest(self, pages: int, setups: int = 1) -> int:
        """Return the largest integer in the duration of a copy of `pages`, [fs] if it is the duration."""
        payload = pages * self.page_bytes
        return max(self.duration(pages, setups), payload, self.per_byte % 1000 * payload)

    def duration(self, pages: int, setups: int = 1) -> int:
        """Return the duration of a copy of `pages` [fs]."""
        return setups * self.setup + self.per_byte * pages * self.page_bytes // 1000


def check_bounds(trace: Trace, config: ClusterConfig, profile: Profile, whole: bool) -> None:
    """Refuse figures with which integers of the core would overflow.

    `whole` is whether some policy looks at the time to prefill a whole prompt in one step.
    """
    longest = longest_served(trace, config)
    if config.fidelity == "engine":
        _check_copies_at_once(config, profile, longest, int((trace.input_tokens + trace.output_tokens).sum()))
    worst = max(_prefill(config, profile, longest, whole), _decode(config, profile, longest))
    worst = max(worst, *_handoff(config, profile, longest), *_copies_of_one(config, profile, longest))
    if worst > LARGE:
        raise InputError(
            f"a request of {longest} tokens and profile {profile.name!r} make times the clock cannot hold; "
            "allowed: shorter requests, or a profile of faster operations"
        )
    if config.fidelity == "engine":
        _check_batches(config, profile, longest)


def check_memory(config: ClusterConfig) -> None:
    """Refuse workers whose tables are larger than the memory that is free; rows of workers name each other."""
    n_prefill, n_decode = config.n_prefill, config.n_decode
    most = max(group.max_running for group in config.decode)
    slots = max(group.max_running for group in config.prefill)
    decode_row = eng.N_DECODE + 3 * (most + 1) + config.page_size + n_prefill
    # The engine's rows are made of the paper's, so that both are there for a while.
    needed = 8 * (n_prefill * (eng.N_PREFILL + 2 * slots + n_decode) + 2 * n_decode * decode_row)
    needed += 8 * n_prefill * n_decode * eng.N_PAIR if config.fidelity == "engine" else 0
    available = available_memory()
    if needed > 0.9 * available:
        raise InputError(
            f"{n_prefill} x {n_decode} workers with max_running {max(most, slots)} and pages of {config.page_size} "
            f"tokens need {needed / 1e9:.3g} GB of memory and {available / 1e9:.3g} GB are free; allowed: fewer "
            "workers, a smaller max_running or page_size"
        )


def longest_served(trace: Trace, config: ClusterConfig) -> int:
    """Return the most tokens of a request that some worker of each role can hold; longer ones are rejected [token]."""
    page, whole = config.page_size, trace.input_tokens + trace.output_tokens
    at_prefill, at_decode = (
        max(group.device_tokens for group in groups) // page for groups in (config.prefill, config.decode)
    )
    fits = (-(-trace.input_tokens // page) <= at_prefill) & (-(-whole // page) <= at_decode)
    return int(whole[fits].max(initial=1))


def _copies(config: ClusterConfig, profile: Profile, path: PathModel) -> Copies:
    return Copies(*path_coefficients(path), coefficients(profile, config.page_size).page_bytes)


def _prefill(config: ClusterConfig, profile: Profile, longest: int, whole: bool) -> int:
    """Return the largest integer in the duration of a prefill step [fs]."""
    _, per_token, per_pair, _ = coefficients(profile, config.page_size).prefill.tolist()
    # A step has no more than a budget, or than all that may be in it.
    step = max(min(g.chunk_tokens, g.device_tokens, g.max_running * longest) for g in config.prefill)
    tokens = max(longest, config.page_size, step)
    reach = tokens if whole else step
    pairs = 2 * (longest + config.page_size) * (reach + config.page_size) * per_pair
    return int(pairs + (tokens + config.page_size) * per_token)


def _decode(config: ClusterConfig, profile: Profile, longest: int) -> int:
    """Return the largest integer in the duration of a decode step [fs], and of a run of them [ps].

    Steps of a batch that does not change happen in one go.
    """
    worst = 0
    for group in config.decode:
        context = group.max_running * longest
        base, slope = decode_coefficients(profile, group.graph_buckets, group.max_running).max(axis=0).tolist()
        worst = max(worst, 2 * (base + context * slope), longest * (base + context * slope) // 1000)
    return int(worst)


def _handoff(config: ClusterConfig, profile: Profile, longest: int) -> Iterator[int]:
    """Yield the largest integers in a handoff of a whole prompt, which is what a chunk may be.

    As many chunks share a way as there are workers at its other end, or wait for it in turn.
    """
    copies, pages = _copies(config, profile, profile.handoff), longest // config.page_size + 1
    yield copies.largest(pages)
    alone, n_sharing = copies.duration(pages) // 1000 + 1, max(config.n_prefill, config.n_decode)
    if config.handoff_sharing == "processor_sharing":
        yield alone * n_sharing
    if config.handoff_sharing == "fifo" and config.fidelity == "paper":
        yield SHARES * alone * n_sharing


def _copies_of_one(config: ClusterConfig, profile: Profile, longest: int) -> Iterator[int]:
    """Yield the largest integers in copies of one request on every other path, and in the sum of those of a round."""
    pages, most = longest // config.page_size + 1, max(group.max_running for group in config.decode)
    paths = (profile.h2d, profile.d2h, *((profile.l3_read, profile.l3_write) if config.l3 else ()))
    for path in paths:
        if path is not None:
            copies = _copies(config, profile, path)
            yield copies.largest(pages)
            # Of the requests at a decode worker, three for each that runs, any may be retracted and resumed.
            yield 6 * most * (copies.duration(pages) // 1000 + 1)


def _check_copies_at_once(config: ClusterConfig, profile: Profile, longest: int, total: int) -> None:
    """Refuse profiles with which what a step loads, or an eviction writes, takes too long; `total` of all requests."""
    size = config.page_size
    for group in config.prefill:
        loaded = min(group.max_running * longest, group.device_tokens, group.host_tokens, total)
        for path, tokens, n_at_once in ((profile.h2d, loaded, 1), (profile.d2h, *_written(config, group, longest))):
            copies, pages = _copies(config, profile, path), tokens // size + 1
            if max(copies.largest(pages), n_at_once * (copies.duration(pages) // 1000 + 1)) > LARGE:
                raise InputError(
                    f"copies of {tokens} tokens at once, which pools of workers allow, take times the clock cannot "
                    f"hold with profile {profile.name!r}; allowed: smaller pools, or a profile of faster copies"
                )


def _written(config: ClusterConfig, group: PrefillGroup, longest: int) -> tuple[int, int]:
    """Return the most tokens that are copied to the host at once, and how many such copies a worker waits for."""
    most = min(group.device_tokens, group.host_tokens)
    if write.POLICIES[config.write.policy].TAKES_EVICTED:
        # An eviction for each candidate that loads, each retraction, and the step.
        swept = 2 * longest + group.chunk_tokens + group.max_running * config.page_size
        return min(most, swept), 2 * group.max_running + 4
    return (min(most, longest) if write.writes_through(config.write.policy) else 0), 1


def _check_batches(config: ClusterConfig, profile: Profile, longest: int) -> None:
    """Refuse batches of L3 so many that their setups and queries take too long together."""
    if config.l3 is None:
        return
    batches = longest // config.page_size // config.l3.batch_pages + 1
    worst = batches * round(profile.l3_query_seconds * PICO)
    if profile.l3_write is not None:
        pages = longest // config.page_size + 1
        worst = max(worst, _copies(config, profile, profile.l3_write).largest(pages, batches))
    if worst > LARGE:
        raise InputError(
            f"l3: batch_pages: {config.l3.batch_pages}; a request of {longest} tokens has {batches} batches, whose "
            "times the clock cannot hold; allowed: more pages, or a profile with shorter l3_query_seconds and setups"
        )
