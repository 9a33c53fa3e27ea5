"""What a cluster file states without effect: figures of policies not chosen, of roles and tiers that are not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvsweep.cluster.inputs.config import ClusterConfig


@dataclass(frozen=True, slots=True)
class Idle:
    """Fields, by section (the empty one is the file itself), that do nothing where `does_nothing`."""

    fields: Mapping[str, tuple[str, ...]]
    does_nothing: Callable[[ClusterConfig], bool]
    when: str
    """When they have effect."""


def notes_of(config: ClusterConfig, stated: Mapping[str, Any]) -> list[str]:
    """Return a line for each reason why fields of `stated`, the cluster file of `config`, have no effect."""
    found = []
    for idle in _RULES:
        names = [name for section in idle.fields if (name := _named(section, idle.fields[section], stated))]
        if names and idle.does_nothing(config):
            found.append(f"{'; '.join(names)}: without effect: {idle.when}")
    return [*found, *_unfilled_hosts(config, stated)]


def _named(section: str, fields: tuple[str, ...], stated: Mapping[str, Any]) -> str:
    """Return the `fields` of `section` that the file states, as in ``engine: overlap, schedule``; '' for none."""
    values = stated.get(section) if section else stated
    there = [name for name in fields if isinstance(values, Mapping) and values.get(name) is not None]
    return f"{section}: {', '.join(there)}" if there and section else ", ".join(there)


def _unfilled_hosts(config: ClusterConfig, stated: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each group of workers whose host never holds a page."""
    for i, group in enumerate(stated["workers"]):
        tokens = float(group.get("host_tokens") or 0)  # which may be text
        if tokens and config.write.policy == "none":
            yield f"workers[{i}]: host_tokens: without effect: nothing fills a host with write policy none"
        elif 0 < tokens < config.page_size:
            yield f"workers[{i}]: host_tokens: without effect: a page has {config.page_size} tokens"


def _has_host(config: ClusterConfig) -> bool:
    return config.write.policy != "none" and _has_host_pages(config)


def _has_host_pages(config: ClusterConfig) -> bool:
    return any(group.host_tokens >= config.page_size for group in config.prefill)


def _is_built_in(policy: str) -> bool:
    return policy in ("default_policy", "all_compute")


_RULES = (
    Idle(
        {"": ("handoff_sharing",), "engine": ("reserved_decode_tokens", "router_join", "prebuilt_seconds")},
        lambda config: config.is_colocated,
        "colocated workers hand nothing off; prefill and decode workers do",
    ),
    Idle({"engine": ("conservativeness",)}, lambda config: not config.is_colocated, "only of colocated workers"),
    Idle(
        {"gateway": ("seed",)},
        lambda config: config.gateway.policy in ("round_robin", "least_loaded", "session_affinity", "cache_aware"),
        "policies random, power_of_two, kv_cost and those of files draw by it",
    ),
    Idle(
        {"gateway": ("balance_requests", "balance_ratio", "match_ratio", "tree_tokens")},
        lambda config: config.gateway.policy != "cache_aware",
        "only of policy cache_aware",
    ),
    Idle(
        {"gateway": ("prefill_load_scale", "device_credit", "host_credit", "disk_credit", "active_weight")},
        lambda config: config.gateway.policy != "kv_cost",
        "only of policy kv_cost",
    ),
    Idle(
        {"gateway": ("host_credit",)},
        lambda config: config.gateway.policy == "kv_cost" and not _has_host(config),
        "nothing is written to a host",
    ),
    Idle(
        {"gateway": ("disk_credit",)},
        lambda config: config.gateway.policy == "kv_cost" and config.l3 is None,
        "only with l3",
    ),
    Idle(
        {"eviction": ("xi_tokens", "growth_tokens")},
        lambda config: config.eviction.policy != "tlru",
        "only of policy tlru",
    ),
    Idle(
        {"retention": ("seconds",)},
        lambda config: config.retention.policy != "idle_ttl",
        "only of policy idle_ttl",
    ),
    Idle(
        {"retention": ("saved_seconds", "cost_per_second", "fit_ratio")},
        lambda config: config.retention.policy != "hazard_ttl",
        "only of policy hazard_ttl",
    ),
    Idle(
        {"retention": ("check_seconds",)},
        lambda config: config.retention.policy == "none",
        "nothing is dropped with policy none",
    ),
    Idle(
        {"retrieval": ("rate_window_seconds",)},
        lambda config: _is_built_in(config.retrieval.policy) and _has_host(config),
        "only of policies that decide by rates, not default_policy and all_compute",
    ),
    Idle(
        {"retrieval": ("policy", "rate_window_seconds"), "engine": ("load_back_threshold_tokens",)},
        lambda config: not _has_host(config),
        "nothing is on a host, for want of host_tokens or of a write policy",
    ),
    Idle(
        {"write": ("policy", "threshold")},
        lambda config: not _has_host_pages(config),
        "no worker has host_tokens of a page",
    ),
    Idle(
        {"write": ("threshold",)},
        lambda config: _has_host_pages(config) and config.write.policy != "write_through",
        "only of policy write_through",
    ),
    Idle({"workload": ("think_seconds",)}, lambda config: config.workload.mode == "open", "only with mode closed"),
    Idle(
        {"l3": ("timeout_base_seconds", "timeout_per_1024_tokens_seconds")},
        lambda config: config.l3 is not None and config.l3.stop_policy != "timeout",
        "only of stop_policy timeout",
    ),
    Idle(
        {"": ("l3",)},
        lambda config: not any(group.host_tokens > group.device_tokens for group in config.prefill),
        "workers fetch from it only with more host_tokens than device_tokens",
    ),
)
