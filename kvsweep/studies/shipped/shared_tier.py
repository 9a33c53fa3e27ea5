"""The tier behind all hosts (L3) made of catalog parts: what drives and links let through, and what wears them out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from kvsweep.catalog.specs import Disk, Link
from kvsweep.cluster.inputs.roofline import L3_QUERY_SECONDS, L3_SECONDS
from kvsweep.cluster.inputs.service_profile import PathModel, Profile
from kvsweep.errors import InputError

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Store:
    """Equal drives behind a network, shared by `workers`, each of which has its part of the drives' rate."""

    disk: Disk
    link: Link
    drives: int
    workers: int

    @property
    def capacity_bytes(self) -> float:
        """Return what all drives hold [byte]."""
        return self.drives * self.disk.capacity

    @property
    def name(self) -> str:
        """Return what it is, in words."""
        return f"{self.drives} x {self.disk.name} behind {self.link.name}"

    def profile(self, profile: Profile) -> Profile:
        """Return `profile` with the paths of this store: a copy goes through drives and link, at the slower's rate."""
        drives = [rate * self.drives / self.workers for rate in _rates(self.disk)]
        rates = [min(self.link.bandwidth, rate) for rate in drives]
        latencies = [each + _link_latency(self.link) for each in _latencies(self.disk)]
        return _with_paths(profile, rates, latencies, f"{self.name}, {self.workers} workers")

    def pool_tokens(self, profile: Profile) -> int:
        """Return the tokens whose KV fits [token]; raises InputError for a store without a capacity."""
        if math.isinf(self.capacity_bytes):
            raise InputError(f"--disk: {self.disk.key} has no capacity in the catalog; allowed: one that has")
        return int(self.capacity_bytes // profile.kv_bytes_per_token)


def on_disk(profile: Profile, disk: Disk) -> Profile:
    """Return `profile` with L3 on a drive of its own."""
    return _with_paths(profile, _rates(disk), _latencies(disk), disk.name)


def behind_link(profile: Profile, link: Link) -> Profile:
    """Return `profile` with L3 in the memory of another machine, at the end of `link`."""
    return _with_paths(profile, [link.bandwidth] * 2, [_link_latency(link)] * 2, link.name)


def drive_writes_per_day(store: Store, written_bytes: float, seconds: float) -> float:
    """Return how often a day the drives are filled anew [1/day], if every day is as these `seconds`."""
    return written_bytes / seconds * DAY / store.capacity_bytes if seconds else math.nan


def lifetime_days(store: Store, written_bytes: float, seconds: float, amplification: float) -> float:
    """Return after how many days the drives have written what they may: TBW/(bytes a day · WAF) [day].

    NaN without a TBW in the catalog, infinite where nothing is written.
    """
    if store.disk.endurance is None or not seconds:
        return math.nan
    per_day = written_bytes / seconds * DAY * amplification
    return store.drives * store.disk.endurance.written_bytes / per_day if per_day else math.inf


def _with_paths(profile: Profile, rates: Sequence[float], latencies: Sequence[float], source: str) -> Profile:
    """Return `profile` with reads and writes of L3 at these rates [byte/s] and latencies [s]."""
    read, write = (
        PathModel(
            boundary=f"from issue of the {what} of a batch of pages to its completion",
            setup_seconds=L3_SECONDS + latency,
            bytes_per_s=rate,
            source=f"{source}; {L3_SECONDS:g} s a batch in software, assumed",
        )
        for what, rate, latency in zip(("read", "write"), rates, latencies, strict=True)
    )
    query = profile.l3_query_seconds or L3_QUERY_SECONDS
    return dataclasses.replace(profile, l3_read=read, l3_write=write, l3_query_seconds=query)


def _rates(disk: Disk) -> tuple[float, float]:
    """Return the rates of reading and writing [byte/s]; a write rate the catalog lacks is that of reading."""
    write = disk.rates.write_bytes_per_s if disk.rates is not None else None
    return disk.bandwidth, write or disk.bandwidth


def _latencies(disk: Disk) -> tuple[float, float]:
    """Return the latencies of reading and writing [s], of what the catalog lacks none."""
    if disk.latency is None:
        return 0.0, 0.0
    write = disk.latency.write_s
    return disk.latency.read_s, disk.latency.read_s if write is None else write


def _link_latency(link: Link) -> float:
    return link.latency.seconds if link.latency is not None else 0.0
