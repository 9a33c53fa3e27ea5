"""The cluster file: workers by role, policies with their parameters, and what the run is asked to report.

Read like the catalog: strict YAML, every number with unit and range, one-line errors naming file, field and what is
allowed. The meaning of each field is in ``paper/README.md`` and ``engine/README.md``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from kvsweep.catalog.fields import Range, field_types, read_batch_sizes, read_fields, read_record, require_fields
from kvsweep.cluster.policies.write import writes_through
from kvsweep.errors import InputError, shown, unknown_name
from kvsweep.yamlfile import read_yaml_file

Workers = Annotated[int, Range("workers", 1, 4096)]
Tokens = Annotated[int, Range("tokens", 1, 1e9)]
TokensOrZero = Annotated[int, Range("tokens", 1, 1e9, or_zero=True)]
PageSize = Annotated[int, Range("tokens", 1, 65_536)]
Running = Annotated[int, Range("requests", 1, 4096)]
Ranks = Annotated[int, Range("GPUs", 1, 1024)]
Seconds = Annotated[float, Range("s", 1e-6, 1e6)]
Ratio = Annotated[float, Range("1", 0.0, 1.0)]
Factor = Annotated[float, Range("1", 0.0, 1e6)]

WriteId = Literal["write_through", "write_through_selective", "write_back", "none"]
Fidelity = Literal["engine", "paper"]
SharingId = Literal["none", "processor_sharing", "fifo"]

GRAPH_BUCKETS = (1, 2, 4, 8, 12, 16, 24, 32)
"""Batch sizes decode graphs are captured for unless the file says otherwise [requests]."""
VLLM_BLOCK = 16
"""Page size of vLLM workers unless the file says otherwise [token]."""
NOT_OF_VLLM = ("eviction", "retention", "retrieval", "write", "handoff_sharing", "engine", "l3")
"""Fields of the cluster file that vLLM workers know nothing of."""
NOT_OF_VLLM_GATEWAY = ("tree_tokens", "host_credit", "disk_credit")
"""And of the gateway before them: it sees caches of the device alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Equal workers, of any role."""

    count: Workers = 1
    tp: Ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillGroup(_Group):
    """Equal prefill workers."""

    device_tokens: Tokens
    host_tokens: TokensOrZero = 0
    chunk_tokens: Tokens = 4096
    max_running: Running = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeGroup(_Group):
    """Equal decode workers; `graph_buckets` [requests] are ascending."""

    device_tokens: Tokens
    max_running: Running = 32
    graph_buckets: tuple[int, ...] = GRAPH_BUCKETS


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocatedGroup(PrefillGroup):
    """Equal workers that decode, too; `graph_buckets` [requests] are ascending."""

    graph_buckets: tuple[int, ...] = GRAPH_BUCKETS


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmGroup(_Group):
    """Equal vLLM workers, in the engine's terms (``vllm/README.md``).

    `n_blocks` [blocks] is what the engine reports, null block included; None is what fits by the profile.
    `graph_buckets` [requests] are ascending, () for none (eager); None is what the engine captures by itself.
    """

    n_blocks: Annotated[int, Range("blocks", 2, 1e7)] | None = None
    token_budget: Annotated[int, Range("tokens", 1, 1e6)] = 2048
    max_sequences: Running = 256
    reserve_full: bool = True
    steps_in_flight: Annotated[int, Range("steps", 1, 2)] = 2
    prefix_cache: bool = True
    graph_buckets: tuple[int, ...] | None = None


KINDS: Mapping[str, Any] = {
    "prefill": PrefillGroup, "decode": DecodeGroup, "colocated": ColocatedGroup, "vllm": VllmGroup,
}  # fmt: skip
"""Groups of workers by role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """How requests are given to workers: a built-in id or that of a policy file.

    The balance and match figures belong to ``cache_aware``, as does `tree_tokens` [token], what the gateway
    remembers of the prompts routed to a worker (engine fidelity); the others to ``kv_cost``.
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
    tree_tokens: Annotated[int, Range("tokens", 1, 1e12)] = 2**24


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """Which idle page goes when room is needed: a built-in id or that of a policy file.

    `xi_tokens` and `growth_tokens` belong to ``tlru``: how much of a conversation's next prompt may be uncached, and
    what that prompt adds to what the worker saw of the conversation, by default the mean over the trace [token].
    """

    policy: str = "lru"
    xi_tokens: TokensOrZero = 4096
    growth_tokens: TokensOrZero | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long idle pages stay when no room is needed: a built-in id or that of a policy file.

    `seconds` belong to ``idle_ttl``. ``hazard_ttl`` chooses its own by what a use of a held page saves and what a
    second of holding it costs [s/s], of which the ratio alone matters, and by the gaps in a share of the trace.
    `check_seconds` is when pages are dropped at all.
    """

    policy: str = "none"
    seconds: Seconds = 60.0
    saved_seconds: Seconds = 1.0
    cost_per_second: Factor = 0.001
    fit_ratio: Annotated[float, Range("1", 1e-6, 1.0)] = 1.0
    check_seconds: Seconds = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """Restore or recompute what the host holds: the id of a restore-or-recompute policy."""

    policy: str = "default_policy"
    rate_window_seconds: Seconds = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """When computed pages are copied to the host; `threshold` [hits] belongs to ``write_through``."""

    policy: WriteId = "write_through"
    threshold: Annotated[int, Range("requests", 1, 1e6)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRules:
    """Options of the engine (``engine/README.md``)."""

    overlap: bool = True
    schedule: Literal["fcfs", "lpm"] = "fcfs"
    max_prefill_tokens: Tokens = 16_384
    reserved_decode_tokens: TokensOrZero = 512
    router_join: bool = True
    prebuilt_seconds: Annotated[float, Range("s", 1e-9, 10.0, or_zero=True)] = 0.0005
    load_back_threshold_tokens: TokensOrZero = 10
    conservativeness: Annotated[float, Range("1", 0.0, 10.0)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTier:
    """The pool behind all hosts (L3), and when a request stops waiting for what is fetched from it."""

    pool_tokens: Annotated[int, Range("tokens", 1, 1e13)]
    stop_policy: Literal["best_effort", "wait_complete", "timeout"] = "best_effort"
    prefetch_threshold_tokens: Tokens = 256
    timeout_base_seconds: Annotated[float, Range("s", 1e-6, 1e6, or_zero=True)] = 1.0
    timeout_per_1024_tokens_seconds: Annotated[float, Range("s", 1e-6, 1e6, or_zero=True)] = 0.25
    batch_pages: Annotated[int, Range("pages", 1, 1e6)] = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """When requests arrive; `think_seconds` [s] is for turns of a closed loop whose think time the trace lacks."""

    mode: Literal["open", "closed"] = "open"
    think_seconds: Annotated[float, Range("s", 0.0, 1e6)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The longest prompt and answer together [token], None for the catalog's figure of the profile's model.

    Longer requests are refused as engines do, cut to it, or served though no engine would.
    """

    tokens: Tokens | None = None
    beyond: Literal["refuse", "cut", "serve"] = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Service level objectives of a request; None is no objective."""

    ttft_seconds: Seconds | None = None
    tpot_seconds: Seconds | None = None
    e2e_seconds: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """A whole cluster file; colocated workers stand under `prefill` and `decode` both, vLLM ones by themselves."""

    name: str = "cluster"
    fidelity: Fidelity = "engine"
    page_size: PageSize = 64
    context: Context = Context()
    workload: Workload = Workload()
    gateway: Gateway = Gateway()
    eviction: Eviction = Eviction()
    retention: Retention = Retention()
    retrieval: Retrieval = Retrieval()
    write: Write = Write()
    handoff_sharing: SharingId = "processor_sharing"
    engine: EngineRules = EngineRules()
    l3: SharedTier | None = None
    slo: Slo = Slo()
    window_seconds: Seconds = 5.0
    prefill: tuple[PrefillGroup, ...] = ()
    decode: tuple[DecodeGroup | ColocatedGroup, ...] = ()
    vllm: tuple[VllmGroup, ...] = ()

    @property
    def core(self) -> str:
        """Return the name of the rules it is simulated by: those of its fidelity, or of vLLM workers."""
        return "vllm" if self.vllm else self.fidelity

    @property
    def n_prefill(self) -> int:
        """Return the number of workers that prefill."""
        return sum(group.count for group in (*self.prefill, *self.vllm))

    @property
    def n_decode(self) -> int:
        """Return the number of workers that decode."""
        return sum(group.count for group in (*self.decode, *self.vllm))

    @property
    def is_colocated(self) -> bool:
        """Return whether each worker both prefills and decodes."""
        return bool(self.vllm) or any(isinstance(group, ColocatedGroup) for group in self.prefill)

    def prefill_workers(self) -> list[PrefillGroup]:
        """Return the group of each prefill worker, by its number."""
        return [group for group in self.prefill for _ in range(group.count)]

    def decode_workers(self) -> list[DecodeGroup | ColocatedGroup]:
        """Return the group of each decode worker, by its number."""
        return [group for group in self.decode for _ in range(group.count)]

    def vllm_workers(self) -> list[VllmGroup]:
        """Return the group of each vLLM worker, by its number."""
        return [group for group in self.vllm for _ in range(group.count)]


def read_config(path: Path) -> ClusterConfig:
    """Return the cluster file at `path`; raises InputError naming file, field and what is allowed."""
    return parse_config(read_yaml_file(path), str(path))


def parse_config(values: Mapping[str, Any], where: str) -> ClusterConfig:
    """Return the configuration stated by `values`, as in a cluster file; `where` is what messages call it."""
    values = dict(values)
    groups = values.pop("workers", None)
    roles = ("prefill", "decode", "vllm")
    stated = [name for name in field_types(ClusterConfig) if name not in roles]
    for name in values:
        if name in roles:
            raise InputError(f"{where}: {name}: workers are a list; allowed: workers: [{{role: {name}, …}}]")
        if name not in stated:
            raise unknown_name(f"{where}: field", name, ["workers", *stated])
    fields = read_fields(ClusterConfig, values, where)
    require_fields(ClusterConfig, fields, where, {})
    found = _groups(groups, f"{where}: workers")
    if "vllm" in found:
        fields.setdefault("page_size", VLLM_BLOCK)
    config = ClusterConfig(**fields, **found)
    _check_fidelity(config, values, where)
    _check(config, where)
    return config


def config_mapping(config: ClusterConfig) -> dict[str, Any]:
    """Return `config` as a cluster file would state it, everything resolved."""
    values = dataclasses.asdict(config)
    by_role = {role: values.pop(role) for role in ("prefill", "decode", "vllm")}
    if config.vllm:
        for name in NOT_OF_VLLM_GATEWAY:
            del values["gateway"][name]
        values = {name: value for name, value in values.items() if name not in NOT_OF_VLLM}
    elif config.is_colocated:
        by_role = {"colocated": by_role["prefill"]}
    groups = [{"role": role, **_stated(group)} for role, members in by_role.items() for group in members]
    if values.get("l3", 0) is None:
        del values["l3"]
    if config.fidelity == "paper":
        del values["engine"], values["gateway"]["tree_tokens"]
    for optional in values.keys() & {"context", "workload", "slo", "eviction"}:
        values[optional] = {name: value for name, value in values[optional].items() if value is not None}
    return {**values, "workers": groups}


def _stated(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a group of workers as a file would state them."""
    stated = {name: value for name, value in group.items() if value is not None}
    if "graph_buckets" in stated:
        stated["graph_buckets"] = list(stated["graph_buckets"])
    return stated


def _groups(groups: object, where: str) -> dict[str, Any]:
    """Return the groups of each field of `ClusterConfig` that holds some."""
    if not isinstance(groups, list) or not groups:
        raise InputError(f"{where}: {shown(groups)} is not a list of groups; allowed: prefill and decode workers")
    found: dict[str, list[Any]] = {role: [] for role in KINDS}
    for i, group in enumerate(groups):
        role, read = _group(group, f"{where}[{i}]")
        found[role].append(read)
    for role in ("vllm", "colocated"):
        if found[role]:
            if any(members for other, members in found.items() if other != role):
                raise InputError(f"{where}: {role} workers beside others; allowed: only those, or prefill and decode")
            members = tuple(found[role])
            return {"vllm": members} if role == "vllm" else {"prefill": members, "decode": members}
    for role in ("prefill", "decode"):
        if not found[role]:
            raise InputError(f"{where}: no {role} worker; allowed: at least one of each role, prefill and decode")
    return {role: tuple(found[role]) for role in ("prefill", "decode")}


def _group(group: object, at: str) -> tuple[str, Any]:
    """Return a group of workers and its role."""
    if not isinstance(group, Mapping):
        raise InputError(f"{at}: {shown(group)} is not a mapping of fields; allowed: role, count, tp, …")
    fields = dict(group)
    role = fields.pop("role", None)
    if not isinstance(role, str) or role not in KINDS:
        raise unknown_name(f"{at}: role", role, KINDS)
    if role == "prefill" or fields.get("graph_buckets") is None:
        return role, read_record(KINDS[role], fields, at)
    buckets = read_batch_sizes(fields.pop("graph_buckets"), f"{at}: graph_buckets", or_none=role == "vllm")
    return role, dataclasses.replace(read_record(KINDS[role], fields, at), graph_buckets=buckets)


def _check_fidelity(config: ClusterConfig, values: Mapping[str, Any], where: str) -> None:
    """Refuse options that the chosen fidelity, or vLLM workers, do not know."""
    gateway = values.get("gateway") or {}
    if config.vllm:
        unfit = [name for name in NOT_OF_VLLM if values.get(name) is not None]
        unfit += [f"gateway: {name}" for name in NOT_OF_VLLM_GATEWAY if gateway.get(name) is not None]
        if unfit:
            raise InputError(f"{where}: {unfit[0]}: unknown to vllm workers; allowed: a file without it")
        if config.fidelity != "engine":
            raise InputError(f"{where}: fidelity: paper: vllm workers have one; allowed: engine, or a file without it")
    if config.fidelity == "engine":
        if config.l3 is not None and not writes_through(config.write.policy):
            raise InputError(f"{where}: l3: with write policy {config.write.policy}; allowed: one that writes through")
        return
    unknown = {
        "engine": values.get("engine") is not None,
        "l3": config.l3 is not None,
        "gateway: tree_tokens": gateway.get("tree_tokens") is not None,
        f"write: policy: {config.write.policy}": config.write.policy not in ("write_through", "none"),
        "workers: role: colocated": config.is_colocated,
    }
    for name, stated in unknown.items():
        if stated:
            raise InputError(f"{where}: {name}: unknown to fidelity paper; allowed: fidelity: engine, or without it")


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
