"""The cluster file: workers by role, policies with their parameters, and what the run is asked to report.

Read like the catalog: strict YAML, every number with unit and range, one-line errors naming file, field and what is
allowed. The meaning of each field is in ``paper/README.md``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from kvsweep.catalog.fields import Range, read_fields, read_record, require_fields
from kvsweep.catalog.yamlfile import read_yaml_mapping
from kvsweep.errors import InputError, shown, unknown_name

Workers = Annotated[int, Range("workers", 1, 4096)]
Tokens = Annotated[int, Range("tokens", 1, 1e9)]
TokensOrZero = Annotated[int, Range("tokens", 1, 1e9, or_zero=True)]
PageSize = Annotated[int, Range("tokens", 1, 65_536)]
Running = Annotated[int, Range("requests", 1, 4096)]
Ranks = Annotated[int, Range("GPUs", 1, 1024)]
Seconds = Annotated[float, Range("s", 1e-6, 1e6)]
Ratio = Annotated[float, Range("1", 0.0, 1.0)]
Factor = Annotated[float, Range("1", 0.0, 1e6)]

RetentionId = Literal["none", "idle_ttl"]
WriteId = Literal["write_through", "none"]
SharingId = Literal["none", "processor_sharing", "fifo"]

GRAPH_BUCKETS = (1, 2, 4, 8, 12, 16, 24, 32)
"""Batch sizes decode graphs are captured for unless the file says otherwise [requests]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillGroup:
    """Equal prefill workers."""

    count: Workers = 1
    tp: Ranks
    device_tokens: Tokens
    host_tokens: TokensOrZero = 0
    chunk_tokens: Tokens = 4096
    max_running: Running = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeGroup:
    """Equal decode workers; `graph_buckets` [requests] are ascending."""

    count: Workers = 1
    tp: Ranks
    device_tokens: Tokens
    max_running: Running = 32
    graph_buckets: tuple[int, ...] = GRAPH_BUCKETS


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """How requests are given to workers: a built-in id or that of a policy file.

    The balance and match figures belong to ``cache_aware``, those after them to ``kv_cost``.
    """

    policy: str = "round_robin"
    seed: Annotated[int, Range("1", 0, 2**31 - 1)] = 0
    balance_requests: Annotated[int, Range("requests", 0, 1e6)] = 32
    balance_ratio: Annotated[float, Range("1", 1.0, 1e3)] = 1.5
    match_ratio: Ratio = 0.3
    prefill_load_scale: Factor = 1.0
    device_credit: Ratio = 1.0
    host_credit: Ratio = 0.75
    disk_credit: Ratio = 0.25
    active_weight: Factor = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """Which idle page goes when room is needed: a built-in id or that of a policy file."""

    policy: str = "lru"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long idle pages stay when no room is needed; `seconds` and `check_seconds` [s] belong to ``idle_ttl``."""

    policy: RetentionId = "none"
    seconds: Seconds = 60.0
    check_seconds: Seconds = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """Restore or recompute what the host holds: the id of a restore-or-recompute policy."""

    policy: str = "default_policy"
    rate_window_seconds: Seconds = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """When computed pages are copied to the host; `threshold` [requests] belongs to ``write_through``."""

    policy: WriteId = "write_through"
    threshold: Annotated[int, Range("requests", 1, 1e6)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """When requests arrive; `think_seconds` [s] is for turns of a closed loop whose think time the trace lacks."""

    mode: Literal["open", "closed"] = "open"
    think_seconds: Annotated[float, Range("s", 0.0, 1e6)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Service level objectives of a request; None is no objective."""

    ttft_seconds: Seconds | None = None
    tpot_seconds: Seconds | None = None
    e2e_seconds: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """A whole cluster file."""

    name: str = "cluster"
    fidelity: Literal["paper"]
    page_size: PageSize = 64
    workload: Workload = Workload()
    gateway: Gateway = Gateway()
    eviction: Eviction = Eviction()
    retention: Retention = Retention()
    retrieval: Retrieval = Retrieval()
    write: Write = Write()
    handoff_sharing: SharingId = "processor_sharing"
    slo: Slo = Slo()
    window_seconds: Seconds = 5.0
    prefill: tuple[PrefillGroup, ...] = ()
    decode: tuple[DecodeGroup, ...] = ()

    @property
    def n_prefill(self) -> int:
        """Return the number of prefill workers."""
        return sum(group.count for group in self.prefill)

    @property
    def n_decode(self) -> int:
        """Return the number of decode workers."""
        return sum(group.count for group in self.decode)

    def prefill_workers(self) -> list[PrefillGroup]:
        """Return the group of each prefill worker, by its number."""
        return [group for group in self.prefill for _ in range(group.count)]

    def decode_workers(self) -> list[DecodeGroup]:
        """Return the group of each decode worker, by its number."""
        return [group for group in self.decode for _ in range(group.count)]


def read_config(path: Path) -> ClusterConfig:
    """Return the cluster file at `path`; raises InputError naming file, field and what is allowed."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    return parse_config(read_yaml_mapping(data, str(path)), str(path))


def parse_config(values: Mapping[str, Any], where: str) -> ClusterConfig:
    """Return the configuration stated by `values`, as in a cluster file; `where` is what messages call it."""
    values = dict(values)
    groups = values.pop("workers", None)
    if values.get("fidelity") == "engine":
        raise InputError(f"{where}: fidelity: 'engine' is not there yet; allowed: paper")
    for name in ("prefill", "decode"):
        if name in values:
            raise InputError(f"{where}: {name}: workers are a list; allowed: workers: [{{role: {name}, …}}]")
    fields = read_fields(ClusterConfig, values, where)
    require_fields(ClusterConfig, fields, where, {})
    config = ClusterConfig(**fields, **_groups(groups, f"{where}: workers"))
    _check(config, where)
    return config


def config_mapping(config: ClusterConfig) -> dict[str, Any]:
    """Return `config` as a cluster file would state it, everything resolved."""
    values = dataclasses.asdict(config)
    groups = [{"role": role, **group} for role in ("prefill", "decode") for group in values.pop(role)]
    for group in groups:
        if "graph_buckets" in group:
            group["graph_buckets"] = list(group["graph_buckets"])
    for optional in ("workload", "slo"):
        values[optional] = {name: value for name, value in values[optional].items() if value is not None}
    return {**values, "workers": groups}


def _groups(groups: object, where: str) -> dict[str, Any]:
    if not isinstance(groups, list) or not groups:
        raise InputError(f"{where}: {shown(groups)} is not a list of groups; allowed: prefill and decode workers")
    kinds: dict[str, type] = {"prefill": PrefillGroup, "decode": DecodeGroup}
    found: dict[str, list[Any]] = {role: [] for role in kinds}
    for i, group in enumerate(groups):
        at = f"{where}[{i}]"
        if not isinstance(group, Mapping):
            raise InputError(f"{at}: {shown(group)} is not a mapping of fields; allowed: role, count, tp, …")
        fields = dict(group)
        role = fields.pop("role", None)
        if role == "colocated":
            raise InputError(f"{at}: role: colocated workers are not there yet; allowed: prefill, decode")
        if role not in found:
            raise unknown_name(f"{at}: role", role, found)
        if role == "decode" and "graph_buckets" in fields:
            buckets = _buckets(fields.pop("graph_buckets"), f"{at}: graph_buckets")
            found[role].append(dataclasses.replace(read_record(DecodeGroup, fields, at), graph_buckets=buckets))
        else:
            found[role].append(read_record(kinds[role], fields, at))
    for role, members in found.items():
        if not members:
            raise InputError(f"{where}: no {role} worker; allowed: at least one of each role, prefill and decode")
    return {role: tuple(members) for role, members in found.items()}


def _buckets(values: object, where: str) -> tuple[int, ...]:
    if (
        not isinstance(values, list)
        or not values
        or not all(type(value) is int and 1 <= value <= 65_536 for value in values)
        or sorted(set(values)) != values
    ):
        raise InputError(f"{where}: {shown(values)}; allowed: ascending whole numbers of 1 to 65536 requests")
    return tuple(values)


def _check(config: ClusterConfig, where: str) -> None:
    size = config.page_size
    for group in config.prefill:
        if group.chunk_tokens % size:
            raise InputError(f"{where}: chunk_tokens: {group.chunk_tokens}; allowed: multiples of page_size, {size}")
    for tokens in (group.device_tokens for groups in (config.prefill, config.decode) for group in groups):
        if tokens < size:
            raise InputError(f"{where}: device_tokens: {tokens}; allowed: at least page_size, {size}")


SHARINGS: tuple[str, ...] = get_args(SharingId)
"""How chunks share the way into a decode worker; the place of an id is its code in the core."""
