"""The facts about hardware and models as frozen records; every number carries its unit and allowed range.

Each part has two faces. The flat fields (``peak_flops``, ``bandwidth``, ``params`` …) are what the linear model
computes with. The groups below them (``compute``, ``effective``, ``shape`` …) are figures of data sheets and
measurements, each group with its `source` and `kind`; an entry written in groups gets its flat fields by the rules
in `kvsweep.catalog.rules`. A group that is None was not published or does not apply.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from kvsweep.catalog.fields import Range

Kind = Literal["vendor", "measured", "assumed"]
"""vendor: a data sheet or config file, or its copy. measured: someone ran it. assumed: analogy, estimate, memory."""
Family = Literal["reference", "datasheet"]
"""reference: flat figures as written. datasheet: groups of sourced figures, flat fields derived."""

Flops = Annotated[float, Range("FLOP/s", 1e9, 1e18)]
HbmBandwidth = Annotated[float, Range("byte/s", 1e9, 1e15)]
HbmCapacity = Annotated[float, Range("byte", 1e8, 1e14)]
DramBandwidth = Annotated[float, Range("byte/s", 1e8, 1e15)]
DramCapacity = Annotated[float, Range("byte", 1e8, 1e16)]
DiskBandwidth = Annotated[float, Range("byte/s", 1e5, 1e15)]
DiskCapacity = Annotated[float, Range("byte", 1e8, 1e19)]
LinkBandwidth = Annotated[float, Range("byte/s", 1e6, 1e15)]
MaxLinkBandwidth = Annotated[float, Range("byte/s", 1e6, 1e15, or_zero=True)]
Latency = Annotated[float, Range("s", 1e-9, 10.0)]
OperationRate = Annotated[float, Range("1/s", 1.0, 1e10)]
Share = Annotated[float, Range("1", 1e-3, 1.0)]
Dollars = Annotated[float, Range("USD", 0.0, 1e9)]
PriceUnit = Literal[
    "usd_per_gpu_hour", "usd_per_gpu", "usd_per_gb", "usd_per_gb_month", "usd_per_1000_requests", "usd_per_kwh"
]
"""What a price is for."""
WeightDtype = Literal["bf16", "fp8", "mxfp4", "nvfp4", "int4", "int8"]
"""Numbers most of the weights are kept in."""
Params = Annotated[float, Range("parameters", 1e6, 1e14)]
Width = Annotated[int, Range("1", 1, 1e7)]
WidthOrZero = Annotated[int, Range("1", 1, 1e7, or_zero=True)]
Count = Annotated[int, Range("1", 1, 1e6)]

USER_SOURCE = "user"
"""Source of figures that name none: a catalog directory of the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sourced:
    """Where a group of figures comes from."""

    source: str = USER_SOURCE
    kind: Kind = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One catalog entry; `source` and `kind` are those of its flat figures, or of the group that matters most."""

    key: str
    name: str
    source: str = USER_SOURCE
    kind: Kind = "assumed"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Entry):
    """An entry with figures; `family` says whether they were written flat or in groups."""

    family: Family


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCompute(Sourced):
    """Dense arithmetic rates per type of number, never the 2:4 sparse ones."""

    bf16_flops: Flops | None = None
    fp16_flops: Flops | None = None
    fp8_flops: Flops | None = None
    int8_ops: Flops | None = None
    fp4_flops: Flops | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMeasuredCompute(Sourced):
    """Best matrix products seen: an upper bound for kernels, not a prefill efficiency."""

    bf16_flops: Flops | None = None
    fp8_flops: Flops | None = None
    fp4_flops: Flops | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEfficiency(Sourced):
    """Shares of the peak that kernels of prefill reach: matrix products, experts, attention of wide and narrow heads.

    Narrow heads are those of at most 64 numbers, whose softmax weighs more. None was not measured.
    """

    gemm: Share
    experts: Share | None = None
    attention: Share
    attention_narrow: Share | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory(Sourced):
    """Device memory by its label."""

    bytes_per_s: HbmBandwidth
    capacity_bytes: HbmCapacity


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuVisibleMemory(Sourced):
    """Device memory as the driver shows it; may lie above or below the label."""

    capacity_bytes: HbmCapacity


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMeasuredMemory(Sourced):
    """Device memory bandwidth as reached by a benchmark."""

    bytes_per_s: HbmBandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLink(Sourced):
    """Path between GPU and host, one direction, theoretical."""

    path: str
    bytes_per_s: LinkBandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLink(Sourced):
    """NVLink, or for AMD Infinity Fabric summed over seven peers; one direction, theoretical."""

    bytes_per_s: LinkBandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class Power(Sourced):
    """Board power limit."""

    tdp_watts: Annotated[float, Range("W", 1.0, 1e5)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Sourced):
    """Year of first sale."""

    year: Annotated[int, Range("1", 1990, 2100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu(Part):
    """One accelerator as sold. `max_link_bandwidth` 0 means uncapped."""

    peak_flops: Flops
    hbm_bandwidth: HbmBandwidth
    hbm_capacity: HbmCapacity
    max_link_bandwidth: MaxLinkBandwidth = 0.0
    cost: Dollars | None = None
    compute: GpuCompute | None = None
    measured_compute: GpuMeasuredCompute | None = None
    efficiency: GpuEfficiency | None = None
    memory: GpuMemory | None = None
    visible_memory: GpuVisibleMemory | None = None
    measured_memory: GpuMeasuredMemory | None = None
    host_link: HostLink | None = None
    peer_link: PeerLink | None = None
    power: Power | None = None
    release: Release | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Theoretical(Sourced):
    """Line rate of a path or device after coding, one direction."""

    bytes_per_s: LinkBandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates(Sourced):
    """Sequential rates of a memory or drive."""

    read_bytes_per_s: DiskBandwidth
    write_bytes_per_s: DiskBandwidth | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations(Sourced):
    """Random operations of a drive, or requests of an object store per prefix or bucket."""

    per_s: OperationRate


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessLatency(Sourced):
    """Time of one access before the first byte."""

    read_s: Latency
    write_s: Latency | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size(Sourced):
    """Capacity of a memory or drive."""

    capacity_bytes: DiskCapacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Endurance(Sourced):
    """Bytes a drive may write within its warranty; for hard disks reads count too."""

    written_bytes: Annotated[float, Range("byte", 1e12, 1e20)]
    drive_writes_per_day: Annotated[float, Range("1/day", 1e-3, 1e3)] | None = None
    warranty_years: Annotated[float, Range("years", 0.5, 30.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dram(Part):
    """One host memory: a module, a channel, or all channels of a server. Without a capacity it is unbounded."""

    bandwidth: DramBandwidth
    capacity: DramCapacity = math.inf
    cost: Dollars | None = None
    category: str | None = None
    theoretical: Theoretical | None = None
    rates: Rates | None = None
    latency: AccessLatency | None = None
    size: Size | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk(Part):
    """One drive, array, remote memory or remote store. Without a capacity it is unbounded."""

    bandwidth: DiskBandwidth
    capacity: DiskCapacity = math.inf
    cost: Dollars | None = None
    category: str | None = None
    theoretical: Theoretical | None = None
    rates: Rates | None = None
    read_operations: Operations | None = None
    write_operations: Operations | None = None
    latency: AccessLatency | None = None
    size: Size | None = None
    endurance: Endurance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveRate(Sourced):
    """Rate of large copies, one direction, with the span seen; small ones take latency + bytes / rate."""

    low_bytes_per_s: LinkBandwidth
    bytes_per_s: LinkBandwidth
    high_bytes_per_s: LinkBandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLatency(Sourced):
    """Fixed time of one operation on a link."""

    seconds: Latency


@dataclass(frozen=True, slots=True, kw_only=True)
class Link(Part):
    """One path, one direction (reference NVLink rows: both directions summed)."""

    bandwidth: LinkBandwidth
    cost: Dollars | None = None
    theoretical: Theoretical | None = None
    effective: EffectiveRate | None = None
    latency: LinkLatency | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights(Sourced):
    """Parameter counts, and the bytes of the checkpoint.

    `active_blocks` counts the matrices a token passes, `per_token` their norms, biases and index weights too; both
    leave out embeddings and head, which runs on the last token only. `experts` is the part of `total` in routed
    experts, `unquantized` what stays bf16 in quantised checkpoints: embeddings, head, norms and routers.
    """

    total: Params
    active: Params
    active_blocks: Params | None = None
    per_token: Params | None = None
    experts: Annotated[float, Range("parameters", 1e6, 1e14, or_zero=True)] = 0.0
    unquantized: Params | None = None
    dtype: WeightDtype = "bf16"
    bytes: Annotated[float, Range("byte", 1e5, 1e15)] | None = None

    @property
    def computed(self) -> float:
        """Parameters [1] a prompt token is multiplied with: the finest count there is."""
        return self.per_token or self.active_blocks or self.active


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """What chooses the tokens sparse attention looks at: `layers` keep an index key of `head_dim` numbers a token.

    Queries of `sparse_layers` attend to `topk` tokens at most.
    """

    layers: Width
    sparse_layers: Width
    heads: Width
    head_dim: Width
    topk: Width


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """Layers that keep one entry for every so many tokens, beside their window: fine ones are indexed, coarse not."""

    fine_layers: WidthOrZero
    fine_ratio: Width
    coarse_layers: WidthOrZero
    coarse_ratio: Width


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape(Sourced):
    """Dimensions of a model, from which KV bytes and FLOPs follow (`kvsweep.catalog.models`); 0 means none.

    `head_dim` is the query/key width; under latent attention (kv_lora_rank > 0) it includes `rope_head_dim`.
    `layers_linear` keep a state instead of KV (linear attention, Mamba), all together `state_bytes_per_sequence`;
    `layers_plain` mix no tokens at all. `window_kv_heads` and `window_head_dim` are those of window layers where
    they differ.
    """

    architecture: Literal["dense", "moe"]
    attention: Literal["mha", "gqa", "mla", "swa-mix", "hybrid"]
    layers: Width
    layers_window: WidthOrZero = 0
    layers_linear: WidthOrZero = 0
    layers_plain: WidthOrZero = 0
    window: WidthOrZero = 0
    window_kv_heads: WidthOrZero = 0
    window_head_dim: WidthOrZero = 0
    state_bytes_per_sequence: Annotated[float, Range("byte", 1.0, 1e12, or_zero=True)] = 0.0
    hidden_size: Width
    heads: Width
    kv_heads: Width
    head_dim: Width
    v_head_dim: Width
    kv_lora_rank: WidthOrZero = 0
    rope_head_dim: WidthOrZero = 0
    intermediate_size: WidthOrZero = 0
    moe_intermediate_size: WidthOrZero = 0
    experts: WidthOrZero = 0
    experts_per_token: WidthOrZero = 0
    shared_experts: WidthOrZero = 0
    dense_layers: WidthOrZero = 0
    vocab: Width
    max_context: Annotated[int, Range("1", 1, 1e9, or_zero=True)]
    indexer: Indexer | None = None
    compression: Compression | None = None

    @property
    def layers_full_attention(self) -> int:
        """Return the number of layers whose KV grows with the whole context."""
        return self.layers - self.layers_window - self.layers_linear - self.layers_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Part):
    """One language model; `gpu_eta` [1] is the share of peak FLOP/s the linear model assumes."""

    params: Params
    tokens_per_block: Annotated[float, Range("tokens", 1.0, 1e6)] = 16.0
    bytes_per_block: Annotated[float, Range("byte", 1e2, 1e12)]
    gpu_eta: Annotated[float, Range("1", 1e-3, 1.0)] = 0.5
    weights: Weights | None = None
    shape: Shape | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack(Entry):
    """A preset of parts by their keys."""

    gpu: str
    dram: str
    disk: str
    link: str
    gpu_count: Count = 1
    dram_count: Count = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Price(Entry):
    """What something cost at a date, `low` to `high` over the offers of the source [USD]; None was not found."""

    unit: PriceUnit
    date: str
    low: Dollars | None = None
    typical: Dollars | None = None
    high: Dollars | None = None
