"""Cluster files to begin with: the set-ups of the paper, every field written out and explained."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from kvsweep.cluster.inputs.config import VLLM_BLOCK
from kvsweep.cluster.inputs.service_profile import Profile, profile_mapping
from kvsweep.cluster.inputs.step_profile import StepProfile
from kvsweep.cluster.inputs.vllm_defaults import assumed_blocks, assumed_fit
from kvsweep.cluster.policies.eviction import POLICIES as EVICTIONS
from kvsweep.cluster.policies.gateway import POLICIES as GATEWAYS
from kvsweep.errors import unknown_name


@dataclass(frozen=True, slots=True)
class Preset:
    """A set-up of the paper: a model on L20Z with TP2, and the number of prefill workers beside one decode worker."""

    model: str
    n_prefill: int
    gpu: str = "l20z"
    tp: int = 2


PRESETS = {
    f"{model}-{n_prefill}p1d": Preset(model, n_prefill) for model in ("qwen3-8b", "qwen3-32b") for n_prefill in (1, 3)
}
"""Presets by name."""

_CLUSTER = """\
# A cluster for `kvsweep cluster run`; rules: kvsweep/cluster/{fidelity}/README.md. Times in [s], KV in [token].
# Fields that begin with # have no effect on this cluster: they belong to other policies or workers.
name: {name}
fidelity: {fidelity:<20} # engine: as SGLang 0.5.9 with HiCache does | paper: the rules of the paper
page_size: 64                  # tokens in a page, the unit of allocation, matching and transfer

workers:
  - role: prefill
    count: {n_prefill}
    tp: {tp}                        # GPUs of a worker; the profile must be of as many
    device_tokens: 262144      # KV that fits on the device (L1)
    host_tokens: 524352        # KV that fits in host memory (L2); 0 for none
    chunk_tokens: 4096         # prompt tokens in a prefill step, a multiple of page_size
    max_running: 32            # requests admitted whose handoff has not ended
  - role: decode
    count: 1
    tp: {tp}
    device_tokens: 262144
    max_running: 32            # sequences in a batch
    graph_buckets: [1, 2, 4, 8, 12, 16, 24, 32]   # a batch takes the time of the least bucket that holds it

context:
  beyond: refuse               # prompt and answer longer than the model's context (the catalog's, or what tokens says):
                               # refuse, as engines do | cut, prompts from the end | serve, though no engine would

workload:
  mode: open                   # open: requests arrive when the trace says | closed: the next one of a session arrives
                               # when the answer before it is complete and its user has thought: as long as the trace
                               # says, else think_seconds, else as long as the recorded arrivals are apart

gateway:
  # {gateways}, or a policy file's
  policy: round_robin
  # seed: 0                    # of random, power_of_two and the ties of kv_cost
  # balance_requests: 32       # cache_aware: loads are out of balance if they differ by more requests than this
  # balance_ratio: 1.5         # ... and by more than this factor
  # match_ratio: 0.3           # ... and a prefix counts if it is more of the prompt than this
  # prefill_load_scale: 1.0    # kv_cost: weight of a page that is to be computed beside one that is held
  # device_credit: 1.0         # ... pages not to compute for each page cached on the device
  # host_credit: 0.75          # ... on the host
  # disk_credit: 0.25          # ... in L3
  # active_weight: 0.0         # ... weight of a request in progress [pages]
{tree}
eviction:
  policy: lru                  # which idle page goes when room is needed: one of
                               # {evictions}, or a policy file's
  # xi_tokens: 4096            # tlru: uncached tokens a conversation's next prompt may have; what is cached beyond that
                               # goes first (0: as lru). growth_tokens: what that prompt adds; without it the mean over
                               # the trace, which nobody knows beforehand

retention:
  policy: none                 # none | idle_ttl: drop what was idle for `seconds` | hazard_ttl: for as long as pays, by
                               # the gaps between uses in the trace, which nobody knows beforehand | a policy file's
  # seconds: 60
  # saved_seconds: 1           # hazard_ttl: what a use of a held page saves
  # cost_per_second: 0.001     # ... and what it costs to hold a page idle for a second, in seconds saved
  # fit_ratio: 1.0             # ... and the share of the trace, from its begin on, whose gaps it knows
  # check_seconds: 1           # time between the checks at which pages are dropped

retrieval:
  policy: default_policy       # default_policy retrieves what the host holds, all_compute nothing, or any policy of
                               # `kvsweep simulate`, which then needs slo.ttft_seconds
  # rate_window_seconds: 60    # window of the request rate such a policy sees

write:
  policy: write_through        # write_through | none: copy computed pages to the host; with fidelity engine, too:
                               # write_through_selective (from the second use on) | write_back (when the device evicts)
  threshold: 1                 # write_through: from this many uses on

handoff_sharing: processor_sharing   # chunks on their way to one decode worker share its rate | fifo: one after the
                               # other | none: all at the full rate

{engine}
slo: {{}}                        # ttft_seconds, tpot_seconds, e2e_seconds: what goodput counts
window_seconds: 5              # of the time series in the result
"""


_VLLM = """\
# vLLM workers for `kvsweep cluster run`; rules: kvsweep/cluster/vllm/README.md. Times in [s].
name: {name}
page_size: 16                  # tokens in a KV block

workers:
  - role: vllm
    count: 4
    tp: {tp}                      # GPUs of a worker; the step profile must be of as many
    n_blocks: {n_blocks:<13}    # KV blocks as the engine reports them (num_gpu_blocks); here what fits:
                               # {why}.
                               # Left out: the same of the GPU memory that the profile states
    token_budget: 2048         # tokens of a step (max_num_batched_tokens)
    max_sequences: 256         # requests of a step (max_num_seqs)
    steps_in_flight: 2         # 2: the next step is scheduled while one runs (async scheduling) | 1
    reserve_full: true         # a request is admitted when there are blocks for all of its tokens
    prefix_cache: true
    # graph_buckets: [1, 2, 4, 8, 16]   # captured batch sizes, [] for none; left out: those the engine captures

context:
  beyond: refuse               # prompt and answer longer than the model's context (the catalog's, or what tokens says):
                               # refuse, as engines do | cut, prompts from the end | serve, though no engine would

workload:
  mode: open                   # open: requests arrive when the trace says | closed: the next one of a session arrives
                               # when the answer before it is complete and its user has thought: as long as the trace
                               # says, else think_seconds, else as long as the recorded arrivals are apart

gateway:
  # {gateways}, or a policy file's
  policy: round_robin
  # seed: 0                    # of random, power_of_two and the ties of kv_cost
  # balance_requests: 32       # cache_aware: loads are out of balance if they differ by more requests than this
  # balance_ratio: 1.5         # ... and by more than this factor
  # match_ratio: 0.3           # ... and a prefix counts if it is more of the prompt than this
  # prefill_load_scale: 1.0    # kv_cost: weight of a block that is to be computed beside one that is held
  # device_credit: 1.0         # ... blocks not to compute for each block cached
  # active_weight: 0.0         # ... weight of a request in progress [blocks]

slo: {{}}                        # ttft_seconds, tpot_seconds, e2e_seconds: what goodput counts
window_seconds: 5              # of the time series in the result
"""
VLLM = "vllm"
"""Preset of vLLM workers, for one of the step profiles that come with kvsweep."""
VLLM_MODEL, VLLM_GPU = "llama-3.1-8b", "h100-sxm"
_TREE = """\
  # tree_tokens: 16777216      # cache_aware: prompts the gateway remembers for each worker
"""
_ENGINE = """\
engine:
  overlap: true                # the scheduler launches a step before it looks at the results of the one before
  schedule: fcfs               # fcfs | lpm: longest prefix on the device first
  max_prefill_tokens: 16384    # prompt tokens in a prefill step, beside chunk_tokens
  reserved_decode_tokens: 512  # headroom a decode worker keeps for each request it has accepted
  router_join: true            # the gateway streams when it has the answers of both workers
  prebuilt_seconds: 0.0005     # round in which requests whose KV arrived join a decode batch (assumed)
  load_back_threshold_tokens: 10   # least that is loaded from the host
  # conservativeness: 1.0      # colocated: share of the answers in progress that is planned for

# l3:                          # a pool that all hosts share
#   pool_tokens: 10000000
#   stop_policy: best_effort   # best_effort | wait_complete | timeout: when a request stops waiting for what is fetched
#   prefetch_threshold_tokens: 256
#   timeout_base_seconds: 1.0
#   timeout_per_1024_tokens_seconds: 0.25
#   batch_pages: 128           # pages in a query, a read, a write
"""
_NO_ENGINE = """\
# With fidelity: engine there are more options; `kvsweep cluster init --fidelity engine` writes them all.
"""


def preset(name: str) -> Preset:
    """Return the preset `name` of the paper."""
    if name not in PRESETS:
        raise unknown_name("--preset", name, (*PRESETS, VLLM))
    return PRESETS[name]


def vllm_file(profile: StepProfile, memory: float | None) -> str:
    """Return a commented file of vLLM workers for `profile`, on GPUs of `memory` [byte] where it does not know that."""
    known = profile.memory_bytes or memory
    fit = assumed_fit(profile, known)
    return _VLLM.format(
        name=VLLM,
        tp=profile.tp,
        n_blocks=assumed_blocks(profile, VLLM_BLOCK, known),
        why=fit.line.partition(": ")[2],
        gateways=" | ".join(GATEWAYS),
    )


def cluster_file(name: str, n_prefill: int, tp: int, fidelity: str) -> str:
    """Return a commented cluster file."""
    is_engine = fidelity == "engine"
    return _CLUSTER.format(
        name=name,
        n_prefill=n_prefill,
        tp=tp,
        fidelity=fidelity,
        tree=_TREE if is_engine else "",
        engine=_ENGINE if is_engine else _NO_ENGINE,
        gateways=" | ".join(GATEWAYS),
        evictions=" | ".join(EVICTIONS),
    )


def profile_file(profile: Profile) -> str:
    """Return `profile` as a file, its note as a comment ahead of it."""
    head = (
        f"# Service models for `kvsweep cluster run`: {profile.note}.\n"
        "# Each model states the interval it times (boundary), its origin (source, kind) and, where something was\n"
        "# measured, the range that was (as in `tokens: {low: 64, high: 8192}`).\n"
    )
    return head + yaml.safe_dump(
        profile_mapping(profile), sort_keys=False, allow_unicode=True, width=110, default_flow_style=None
    )
