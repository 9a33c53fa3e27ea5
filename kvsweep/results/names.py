"""The glossary in code: unit and meaning of every variable and coordinate a kvsweep file holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Name(NamedTuple):
    """Unit (CF style, ``1`` for dimensionless) and meaning of a variable."""

    units: str
    long_name: str


TEXT = ""
"""Unit of names and labels, which carry none."""

NAMES: Mapping[str, Name] = {
    # Axes and coordinates
    "policy": Name(TEXT, "restore-or-recompute policy"),
    "policy_label": Name(TEXT, "display name of the policy"),
    "policy_description": Name(TEXT, "what the policy does"),
    "policy_color": Name(TEXT, "display colour of the policy, #rrggbb"),
    "policy_order": Name("1", "display order of the policy"),
    "policy_recomputes": Name(TEXT, "side of the prefix the policy recomputes"),
    "policy_modes": Name("1", "number of decision modes of the policy"),
    "stack": Name(TEXT, "stack preset of the catalog"),
    "gpu": Name(TEXT, "GPU of the catalog"),
    "dram": Name(TEXT, "DRAM of the catalog"),
    "disk": Name(TEXT, "disk of the catalog"),
    "link": Name(TEXT, "link of the catalog"),
    "model": Name(TEXT, "model of the catalog"),
    "gpu_count": Name("1", "GPUs that share the work"),
    "dram_count": Name("1", "DRAM modules"),
    "peak_flops": Name("s-1", "peak floating-point operations per second of one GPU"),
    "hbm_bandwidth": Name("byte s-1", "HBM bandwidth of one GPU"),
    "hbm_capacity": Name("byte", "HBM capacity of one GPU"),
    "dram_bandwidth": Name("byte s-1", "DRAM bandwidth"),
    "dram_capacity": Name("byte", "capacity of one DRAM module"),
    "disk_bandwidth": Name("byte s-1", "disk read bandwidth"),
    "disk_capacity": Name("byte", "disk capacity"),
    "link_bandwidth": Name("byte s-1", "bandwidth of the link to the GPU"),
    "model_params": Name("1", "parameters of the model"),
    "tokens_per_block": Name("1", "tokens in a KV block"),
    "bytes_per_block": Name("byte", "bytes of a KV block"),
    "gpu_eta": Name("1", "achieved share of the peak compute"),
    "weights_fit": Name("1", "whether the weights leave HBM for KV blocks"),
    "total_blocks": Name("1", "KV blocks a request needs"),
    "placement": Name(TEXT, "where the hit blocks live"),
    "vram_fraction": Name("1", "share of the hit blocks placed in HBM"),
    "dram_fraction": Name("1", "share of the hit blocks placed in DRAM"),
    "disk_fraction": Name("1", "share of the hit blocks placed on disk"),
    "hit_ratio": Name("1", "requested share of the blocks that is cached"),
    "miss_blocks": Name("1", "blocks cached nowhere"),
    "request_rate": Name("s-1", "requests per second"),
    "p95_seconds": Name("s", "latency target"),
    "tier": Name(TEXT, "memory tier"),
    "storage_throughput": Name("s-1", "blocks restored per second, all tiers together"),
    "recompute_throughput": Name("s-1", "blocks recomputed per second"),
    "tier_hit_blocks": Name("1", "hit blocks in a tier"),
    "tier_throughput": Name("s-1", "blocks restored per second from a tier"),
    # Variables of a sweep
    "reassigned_hit_blocks": Name("1", "hit blocks recomputed instead of restored"),
    "total_time": Name("s", "time of the request, the longer of restore and recompute"),
    "meets_slo": Name("1", "whether latency, GPU and storage limits are all met"),
    "decision_mode": Name("1", "branch of the policy that decided"),
    # Scheduler overhead
    "path": Name(TEXT, "way a decision is run"),
    "request_count": Name("1", "requests in a stream"),
    "combination": Name("1", "number of a workload in the pool"),
    "round": Name("1", "number of a measurement of all combinations"),
    "quartile": Name("1", "share of the trials below"),
    "bound": Name(TEXT, "end of an interval"),
    "sample": Name("1", "number of a control measurement"),
    "stream_seconds": Name("s", "scheduler time of a stream, loop included, median of the trials"),
    "stream_seconds_quartile": Name("s", "scheduler time of a stream, loop included, quartiles of the trials"),
    "stream_loop_seconds": Name("s", "time of the loop over a stream without decisions, median of the trials"),
    "stream_service_seconds": Name("s", "modelled time of all requests of a stream, mean of the trials"),
    "round_seconds": Name("s", "time of one decision, loop included"),
    "loop_seconds": Name("s", "time of the loop without a decision, for one decision"),
    "decision_seconds": Name("s", "time of one decision without the loop, median of the rounds"),
    "added_seconds": Name("s", "time of one decision above the mean of the baseline policies"),
    "added_mean_bound": Name("s", "95 % interval of the mean added time over the combinations"),
    "added_median_bound": Name("s", "95 % interval of the median added time over the combinations"),
    "service_seconds": Name("s", "modelled time of the request"),
    "timed_reps": Name("1", "decisions in one measurement of a combination"),
    "control_seconds": Name("s", "time of a fixed piece of work, repeated through the run"),
    # Derived
    "storage_time": Name("s", "time of the restore"),
    "recompute_time": Name("s", "time of the recomputation"),
    "gpu_utilization": Name("1", "request rate times recompute time"),
    "storage_utilization": Name("1", "request rate times restore time"),
    "latency_ratio": Name("1", "total time over latency target"),
    "slo_margin": Name("s", "latency target minus total time"),
    "max_violation": Name("1", "largest excess over the latency, GPU and storage limits"),
    "verdict": Name("1", "state against the SLO"),
    "success_rate": Name("1", "share of the points that meet the SLO"),
    "sufficient": Name("1", "index of the simplest policy that meets the SLO, -1 where none does"),
    "speedup": Name("1", "total time of one policy over that of another"),
    # Reductions
    "sufficient_share": Name("1", "share of the points where the policy is the simplest that meets the SLO"),
    "total_time_mean": Name("s", "mean total time"),
    "total_time_min": Name("s", "least total time"),
    "total_time_max": Name("s", "greatest total time"),
    "reassigned_hit_blocks_mean": Name("1", "mean of the hit blocks recomputed"),
    # Requests of a cluster run
    "arrival": Name("s", "time of arrival, from the first of the trace"),
    "prefill_start": Name("s", "start of the first prefill step"),
    "prefill_end": Name("s", "end of the last prefill step"),
    "handoff_end": Name("s", "arrival of the whole KV at the decode worker"),
    "first_token": Name("s", "end of the first decode step"),
    "finish": Name("s", "end of the last decode step"),
    "ttft": Name("s", "time to first token, from the arrival"),
    "tpot": Name("s", "time per output token after the first"),
    "e2e": Name("s", "time from the arrival to the last token"),
    "prompt_tokens": Name("1", "tokens of the prompt"),
    "output_tokens": Name("1", "tokens of the answer"),
    "uncached_tokens": Name("1", "prompt tokens computed"),
    "hit_tokens": Name("1", "prompt tokens reused from a tier"),
    "prefill_worker": Name("1", "index of the prefill worker, -1 for none"),
    "decode_worker": Name("1", "index of the decode worker, -1 for none"),
    "queue_delay": Name("s", "time waited for a cause"),
    "session": Name("1", "number of the session, -1 for none"),
    "rejected": Name("1", "whether no worker could ever hold the request"),
    "cause": Name(TEXT, "what a request waited for"),
    # Windows and workers of a cluster run
    "window": Name("s", "start of the window"),
    "outstanding": Name("1", "requests that arrived and have not finished at the end of the window"),
    "completed_requests": Name("1", "requests that finished in the window"),
    "delivered_tokens": Name("1", "tokens delivered in the window"),
    "worker": Name(TEXT, "worker of the cluster"),
    "worker_role": Name(TEXT, "what the worker does"),
    "occupancy": Name("1", "KV tokens held in the tier, mean over time"),
    "evictions": Name("1", "pages evicted from the tier to make room"),
    "expirations": Name("1", "pages dropped from the tier after their time to live"),
    "bytes_in": Name("byte", "bytes copied into the tier"),
    "bytes_out": Name("byte", "bytes copied out of the tier"),
    "utilization": Name("1", "share of the time the worker computes"),
    # Axes of a cluster study
    "profile": Name(TEXT, "service models of the workers"),
    "trace": Name(TEXT, "trace of requests"),
    "fidelity": Name(TEXT, "rules of the simulation"),
    "gateway": Name(TEXT, "gateway policy, which gives requests to workers"),
    "eviction": Name(TEXT, "eviction policy, which makes room"),
    "retention": Name(TEXT, "retention policy, which drops what is idle"),
    "retrieval": Name(TEXT, "retrieval policy, restore or recompute what the host holds"),
    "write": Name(TEXT, "write policy, which copies computed pages to the host"),
    "handoff_sharing": Name(TEXT, "how chunks share the way into a decode worker"),
    "n_prefill": Name("1", "prefill workers"),
    "n_decode": Name("1", "decode workers"),
    "n_colocated": Name("1", "workers that prefill and decode"),
    "page_size": Name("1", "tokens in a page"),
    "chunk_tokens": Name("1", "prompt tokens in a prefill step"),
    "device_tokens": Name("1", "KV tokens that fit on the device of a worker"),
    "host_tokens": Name("1", "KV tokens that fit in the host memory of a worker"),
    "ttl": Name("s", "idle time after which KV is dropped, inf for never"),
    "rate_scale": Name("1", "factor on the rate of arrivals"),
    "seed": Name("1", "seed of everything random"),
    # Figures of a cluster study
    "statistic": Name(TEXT, "mean or quantile over requests"),
    "slo": Name(TEXT, "limits of a service level objective"),
    "requests": Name("1", "requests that arrived"),
    "rejected_requests": Name("1", "requests that no worker could ever hold"),
    "token_hit_ratio": Name("1", "share of the prompt tokens that is reused"),
    "slo_attainment": Name("1", "share of the requests that meet all limits of the SLO"),
    "goodput": Name("s-1", "requests a second that meet all limits of the SLO"),
    "tokens_per_second": Name("s-1", "tokens delivered per second, all requests together"),
    "decode_occupancy": Name("1", "KV tokens held by the decode workers, mean over time"),
    "prefill_utilization": Name("1", "share of the time the workers that prefill compute"),
    "decode_utilization": Name("1", "share of the time the decode workers compute"),
    "handoff_bytes": Name("byte", "bytes handed to the decode workers"),
    "bottleneck": Name("1", "what the slowest twentieth of the requests waited longest for"),
    "gpus": Name("1", "GPUs of all workers"),
    "worker_hours": Name("h", "time all workers together were there"),
    "simulated_seconds": Name("s", "time from the first arrival to the last token"),
    "extrapolated_ratio": Name("1", "share of the operations outside what the profile measured"),
    "best": Name("1", "index of the best along an axis, -1 for none"),
    "cell_state": Name("1", "whether the simulation is pending, done or failed"),
    # Studies of the paper
    "load": Name(TEXT, "rate of arrivals: the paper's, or the trace's own"),
    "mean_e2e": Name("s", "mean time from the arrival to the last token"),
    "mean_ttft": Name("s", "mean time to first token"),
    "mean_occupancy": Name("1", "KV tokens held in L1 and L2 of the prefill workers, mean over time"),
    "session_uncached_tokens": Name("1", "prompt tokens of the session that are computed"),
    "session_e2e": Name("s", "mean time from the arrival to the last token of the session's requests"),
    "uncached_change": Name("1", "relative change of the prompt tokens computed"),
    "e2e_change": Name("1", "relative change of the mean E2E latency"),
    "session_uncached_change": Name("1", "relative change of the session's prompt tokens computed"),
    "session_e2e_change": Name("1", "relative change of the session's mean E2E latency"),
    "occupancy_change": Name("1", "relative change of the occupancy"),
    "ttft_change": Name("1", "relative change of the mean time to first token"),
    "source": Name(TEXT, "where the KV of a prompt comes from"),
    "working_set": Name("1", "KV tokens of all documents that are asked about"),
    "case": Name(TEXT, "model, topology, workload and rate of a replay"),
    "host_hit_ratio": Name("1", "share of the reused tokens that the host gave"),
    "retrieving_ratio": Name("1", "share of the requests that retrieved from the host"),
    "turnaround": Name("1", "simulated span over the CPU time it took"),
    "control_is_exact": Name("1", "whether a time to live that never ends gives LRU to the last bit"),
    # Event log of a cluster run
    "event_time": Name("s", "time of the event"),
    "event_kind": Name("1", "what happened"),
    "event_request": Name("1", "index of the request"),
    "event_worker": Name("1", "index of the worker, prefill workers first"),
}


REDUCTIONS: Mapping[str, str] = {
    "success_rate": "success_rate",
    "sufficient": "sufficient_share",
    "total_time_mean": "total_time_mean",
    "total_time_min": "total_time_min",
    "total_time_max": "total_time_max",
    "reassigned_hit_blocks_mean": "reassigned_hit_blocks_mean",
}
"""Reductions of a sweep by the name users ask for, with the variable that holds each."""

REDUCED_OVER = ("request_rate", "p95_seconds")
"""Dims a reduction runs over unless told otherwise."""


def attributes(name: str) -> dict[str, str]:
    """Return the ``units`` and ``long_name`` attributes of a variable or coordinate."""
    known = NAMES[name]
    return {"long_name": known.long_name} | ({"units": known.units} if known.units else {})
