"""The pictures of a KV hierarchy: their figures from full simulations, and what must hold of them."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import xarray as xr

import kvsweep
from kvsweep.catalog import load
from kvsweep.catalog.specs import Disk, Link
from kvsweep.cluster.inputs.config import EngineRules, config_mapping
from kvsweep.cluster.inputs.roofline import L3_QUERY_SECONDS, L3_SECONDS
from kvsweep.errors import InputError
from kvsweep.report.plots.studies.pictures import (
    capacity_figure,
    cliff_figure,
    pareto,
    pareto_figure,
    sources_figure,
    ttft_limit,
)
from kvsweep.studies.shipped import pictures
from kvsweep.studies.shipped.pictures import (
    bounds,
    capacity_study,
    next_terabyte,
    sources,
    tiers_study,
    tiers_table,
    with_wear,
    worker_cluster,
)
from kvsweep.studies.shipped.shared_tier import Store, lifetime_days
from kvsweep.trace.generate import generate
from tests.cli_runner import done, refused, run
from tests.studies import samples as study_samples

matplotlib.use("Agg")
PROFILE = study_samples.profile()
DISK, LINK = load().disks["samsung-pm1743-7.68t"], load().links["rdma-400g"]
SLOWER, SLOWEST = load().disks["samsung-pm9a3-7.68t"], load().disks["HDD"]
TRACE = {"generate": "qa", "sessions": 30, "turns": 6}


@pytest.mark.parametrize("fidelity", study_samples.FIDELITIES)
def test_sources_are_ordered_and_recompute_is_its_formula(fidelity: str) -> None:
    ds = sources(PROFILE, DISK, LINK, fidelity, (1000, 4000))
    ttft = ds["ttft"]
    assert ds["source"].values.tolist() == [*pictures.SOURCES][: 3 if fidelity == "paper" else 5]
    assert ds.attrs["kvsweep_fidelity"] == fidelity
    assert (ttft.sel(source="device") < ttft.sel(source="host")).all()
    assert (ttft.sel(source="host") < ttft.sel(source="recompute")).all()
    model, tokens = PROFILE.prefill, 4000
    prefill = model.fixed_seconds + model.token_seconds * tokens + model.token_pair_seconds * tokens**2 / 2
    pages = -(-tokens // 64)
    handoff = (
        PROFILE.handoff.setup_seconds + pages * round(64 * PROFILE.kv_bytes_per_token) / PROFILE.handoff.bytes_per_s
    )
    decode = PROFILE.decode.base_seconds[0] + PROFILE.decode.context_token_seconds[0] * tokens
    if fidelity == "engine":  # the first token comes with the prompt, after a prebuilt round
        decode = EngineRules().prebuilt_seconds
    found = float(ttft.sel(source="recompute", prompt_tokens=tokens))
    assert found == pytest.approx(max(prefill, model.least_seconds) + handoff + decode, rel=1e-6)
    assert float(ds["handoff"].sel(source="recompute", prompt_tokens=tokens)) == pytest.approx(handoff, rel=1e-6)
    assert [len(ax.get_lines()) for ax in sources_figure(ds).axes] == [ds.sizes["source"]] * 2


@pytest.mark.parametrize(
    ("source", "part", "tokens"),
    [("disk", DISK, 20_000), ("remote", LINK, 20_000), ("disk", SLOWER, 100_000), ("disk", SLOWEST, 100_000)],
)
def test_what_lies_behind_the_host_is_fetched_at_the_rate_of_its_catalog_part(
    source: str, part: Disk | Link, tokens: int
) -> None:
    """Queries and batches of 128 pages, loading that overlaps with computing the last page, handoff, first token."""
    page, disk = 64, part if isinstance(part, Disk) else DISK
    found = float(sources(PROFILE, disk, LINK, "engine", (tokens,))["ttft"].sel(source=source)[0])
    pages, page_bytes = tokens // page, round(page * PROFILE.kv_bytes_per_token)
    batches = -(-pages // 128)
    latency = part.latency.read_s if isinstance(part, Disk) and part.latency else 5e-6
    fetch = batches * (L3_QUERY_SECONDS + L3_SECONDS + latency) + pages * page_bytes / part.bandwidth
    load = PROFILE.h2d.setup_seconds + pages * page_bytes / PROFILE.h2d.bytes_per_s
    rest = tokens - pages * page
    model, pairs = PROFILE.prefill, (tokens**2 - (tokens - rest) ** 2) / 2
    step = max(model.least_seconds, model.fixed_seconds + model.token_seconds * rest + model.token_pair_seconds * pairs)
    assert PROFILE.n_layers is not None
    computed = max(step + load / PROFILE.n_layers, load + step / PROFILE.n_layers)
    handoff = PROFILE.handoff.setup_seconds + (pages + 1) * page_bytes / PROFILE.handoff.bytes_per_s
    assert found == pytest.approx(fetch + computed + handoff + EngineRules().prebuilt_seconds, rel=1e-6)


@pytest.fixture(scope="module", params=study_samples.FIDELITIES)
def capacity(request: pytest.FixtureRequest) -> xr.Dataset:
    config = worker_cluster(2, 32_768, 0, request.param)
    study = capacity_study(PROFILE, config, TRACE, [0, 65_536, 262_144, 1 << 20])
    study["axes"]["eviction"] = ["lru", "lfu"]
    return kvsweep.cluster.sweep(study)


def test_capacity_grows_up_to_the_infinite_cache(capacity: xr.Dataset) -> None:
    ratio = capacity["token_hit_ratio"].sel(eviction="lru").values
    trace = generate("qa", 30, 0, turns=6)
    limit = bounds(trace, [32_768 + tokens for tokens in capacity["host_tokens"].values])
    assert (np.diff(ratio) >= 0).all() and (np.diff(limit.lru) >= 0).all()
    # A request computes its last token whatever is cached, and shares whole pages only.
    assert ratio[-1] == pytest.approx(limit.infinite, abs=0.02) and (np.array(limit.lru) <= limit.infinite).all()
    (ax,) = capacity_figure(capacity, limit.lru, limit.infinite, 131_072.0).axes
    assert [text.get_text() for text in ax.get_xticklabels()][-1] == "1.05M\n140 GB"
    assert len(ax.get_lines()) == 4


def test_the_next_terabyte_is_the_slope(capacity: xr.Dataset) -> None:
    rows = next_terabyte(capacity, 1e6)
    assert rows[0]["host_terabytes"] == 0 and np.isnan(rows[0]["hit_ratio_per_terabyte"])
    gained = rows[2]["token_hit_ratio"] - rows[1]["token_hit_ratio"]
    assert rows[2]["hit_ratio_per_terabyte"] == pytest.approx(gained / ((262_144 - 65_536) * 1e6 / 1e12))


def test_tiers_side_by_side(capacity: xr.Dataset) -> None:
    rows = tiers_table(capacity.sel(eviction="lru").isel(host_tokens=[0, 2]))
    assert rows[0]["tiers"] == "device only" and rows[1]["tiers"] == "+ host 0.262M tokens"
    assert rows[0]["hit_share_l2"] == 0 < rows[1]["hit_share_l2"]
    assert rows[1]["bytes_moved"] > rows[0]["bytes_moved"] and rows[1]["hit_ratio"] > rows[0]["hit_ratio"]
    # Without a host nothing moves but what is handed to the decode worker, and that once.
    handed = float(capacity["handoff_bytes"].sel(eviction="lru", host_tokens=0))
    assert rows[0]["bytes_moved"] == handed > 0


def test_a_shared_tier_is_the_third_row_and_wears_its_drives() -> None:
    store = Store(DISK, LINK, drives=2, workers=1)
    config = worker_cluster(2, 32_768, 65_536)
    study = tiers_study(PROFILE, config, TRACE, 65_536, store)
    ds = with_wear(kvsweep.cluster.sweep(study), store, 2.0)
    rows = tiers_table(ds)
    assert [row["tiers"].split(" ")[:2] for row in rows] == [["device", "only"], ["+", "host"], ["+", "shared"]]
    assert rows[0]["hit_share_l3"] == rows[1]["hit_share_l3"] == 0 < rows[2]["hit_share_l3"]
    assert rows[2]["hit_ratio"] > rows[1]["hit_ratio"] and rows[2]["bytes_moved"] > rows[1]["bytes_moved"]
    assert np.isnan([row["drive_writes_per_day"] for row in rows[:2]]).all()
    cell = ds.isel(host_tokens=1, l3_tokens=1)
    written, days = float(cell["bytes_in"].sel(tier="l3")), float(cell["simulated_seconds"]) / 86_400
    assert DISK.endurance is not None and written > 0
    assert rows[2]["drive_writes_per_day"] == pytest.approx(written / days / (2 * DISK.capacity))
    assert rows[2]["lifetime_days"] == pytest.approx(2 * DISK.endurance.written_bytes * days / (2.0 * written))
    # What is written anew must fit: L3 holds no page twice, and this pool evicts none.
    assert written <= float(cell["uncached_tokens"]) * PROFILE.kv_bytes_per_token
    # A cell of the study is the single run of a cluster with this pool.
    values = {**config_mapping(config), "l3": {"stop_policy": "timeout", "pool_tokens": store.pool_tokens(PROFILE)}}
    one = kvsweep.cluster.run(generate("qa", 30, 0, turns=6), values, store.profile(PROFILE))
    assert int(one["hit_tokens"].sel(tier="l3").sum()) == int(cell["hit_tokens"].sel(tier="l3")) > 0


def test_a_store_is_as_fast_as_the_slower_of_drives_and_link() -> None:
    two, many = (Store(DISK, LINK, drives, workers=4).profile(PROFILE) for drives in (2, 64))
    assert two.l3_read is not None and many.l3_read is not None and two.l3_write is not None
    assert DISK.rates is not None and DISK.rates.write_bytes_per_s is not None
    assert two.l3_read.bytes_per_s == DISK.rates.read_bytes_per_s / 2
    assert two.l3_write.bytes_per_s == DISK.rates.write_bytes_per_s / 2
    assert many.l3_read.bytes_per_s == LINK.bandwidth
    unbounded = load().disks["nvmeof-rdma-400g"]
    with pytest.raises(InputError, match="--disk: nvmeof-rdma-400g has no capacity"):
        Store(unbounded, LINK, 1, 1).pool_tokens(PROFILE)
    worn = Store(load().disks["HDD"], LINK, 1, 1)
    assert worn.disk.endurance is None and np.isnan(lifetime_days(worn, 1e12, 60.0, 1.0))
    assert lifetime_days(Store(DISK, LINK, 1, 1), 0.0, 60.0, 1.0) == np.inf


@pytest.mark.parametrize("fidelity", study_samples.FIDELITIES)
def test_the_cliff_comes_later_with_more_memory(fidelity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "DOCUMENTS", (4, 24, 96))
    monkeypatch.setattr(pictures, "CLIFF_REQUESTS", 200)
    ds = pictures.with_working_sets(kvsweep.cluster.sweep(pictures.cliff_study(PROFILE, (0, 524_352), fidelity)))
    ttft = ds["ttft"].sel(statistic="mean")
    assert float(ttft.sel(host_tokens=0, working_set=768_000)) > 2 * float(ttft.sel(host_tokens=0, working_set=32_000))
    assert (ttft.sel(host_tokens=524_352) <= ttft.sel(host_tokens=0) * 1.01).all()
    assert len(cliff_figure(ds, 262_144).axes) == 2


def test_the_pareto_front_is_what_nothing_exceeds() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.random(60), rng.random(60)
    x[3], y[5] = np.nan, np.nan
    front = pareto(x, y)
    for i in set(range(60)) - {3, 5}:
        beaten = any((x[j] >= x[i] and y[j] > y[i]) or (x[j] > x[i] and y[j] >= y[i]) for j in range(60))
        assert (i in front) != beaten
    ds = kvsweep.cluster.sweep(study_samples.study(axes={"n_decode": [1, 2], "rate_scale": [1, 4]}))
    (ax,) = pareto_figure(ds).axes
    assert ax.get_xlabel().startswith("Tokens per second and user")
    # Labels stand within the axes, apart from one another.
    places = ax.transAxes.inverted().transform(ax.transData.transform([text.xy for text in ax.texts]))
    assert len(places) and (places > 0).all() and (places < 1).all()
    for i, a in enumerate(places):
        assert all(abs(a[0] - b[0]) >= 0.27 or abs(a[1] - b[1]) >= 0.05 for b in places[:i])


def test_what_keeps_everybody_waiting_is_not_on_the_front() -> None:
    axes = {"n_decode": [1, 2], "rate_scale": [1, 4]}
    ds = kvsweep.cluster.sweep(study_samples.study(axes=axes, slo={"ttft_seconds": 0.607}))
    mean = ds["ttft"].sel(statistic="mean")
    assert ((mean > 0.607).any() and (mean <= 0.607).any()) and ttft_limit(ds) == 0.607
    (ax,) = pareto_figure(ds).axes
    slow, settings, _ = ax.get_lines()
    assert (len(slow.get_xdata()), len(settings.get_xdata())) == (int((mean > 0.607).sum()), int((mean <= 0.607).sum()))
    assert f"{int((mean <= 0.607).sum())} of 4 settings have a mean TTFT of at most 0.607 s" in ax.get_title()
    assert ttft_limit(ds.assign_attrs(kvsweep_config="{}")) == 10.0
    for low, high in (ax.get_xlim(), ax.get_ylim()):
        assert high - low >= 0.09 * high, "a trifle would look as if it mattered"
    assert "none" not in ax.get_title() and len(pareto_figure(ds, 1e-9).axes[0].get_lines()[-1].get_xdata()) == 0


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done("trace", "generate", "--preset", "qa", "--sessions", "12", "-o", "trace.jsonl", "-q")
    rows = json.loads(done("study", "capacity", "--trace", "trace.jsonl", "-o", "c.png", "--data", "c.nc", "--format",
                           "json", "-q").stdout)  # fmt: skip
    assert rows[-1]["token_hit_ratio"] >= rows[0]["token_hit_ratio"] and "one_lru_of_all_room" in rows[0]
    done("figures", "curve", "c.nc", "--x", "host_tokens", "--lines", "eviction", "--value", "token_hit_ratio",
         "-o", "curve.png")  # fmt: skip
    done("report", "c.nc")
    assert "device only" in done("study", "tiers", "--trace", "trace.jsonl", "-q").stdout
    rows = json.loads(done("study", "tiers", "--trace", "trace.jsonl", "--format", "json", "-q").stdout)
    assert [row["drive_writes_per_day"] is None for row in rows] == [True, True, False]
    text = done("study", "tiers", "--fidelity", "paper", "--trace", "trace.jsonl", "-q").stdout
    assert "No shared tier: fidelity paper" in text and "writes/day" not in text
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "disks.yaml").write_text(
        "tape: {name: tape, bandwidth: 1.0e+06, capacity: 4.0e+12, kind: assumed}\n"
    )
    monkeypatch.setenv("KVSWEEP_HARDWARE", "parts")
    text = done("study", "sources", "--disk", "tape", "-q").stdout
    assert text.count("–") == 3 + 1 and "longer than the simulator's clock holds" in text
    done("trace", "generate", "--preset", "coding", "--sessions", "12", "-o", "long.jsonl", "-q")
    slow = run("study", "tiers", "--trace", "long.jsonl", "--disk", "tape", "-q")
    assert slow.exit_code == 1 and "times the clock cannot hold" in slow.stderr and "device only" in slow.stdout
    tight = run("study", "tiers", "--trace", "trace.jsonl", "--host-tokens", "262144")
    assert tight.exit_code == 0 and [line for line in tight.stderr.splitlines() if "without effect" in line] == [
        "l3: without effect: workers fetch from it only with more host_tokens than device_tokens"
    ]
    assert "without effect" not in run("study", "tiers", "--trace", "trace.jsonl").stderr
    done("study", "sources", "-o", "s.png", "-q")
    done("figures", "pareto", "c.nc", "--max-ttft", "5", "-o", "p.pdf")
    assert "--max-ttft: nan; allowed: > 0 s" in refused("figures", "pareto", "c.nc", "--max-ttft", "nan", "-o", "q.pdf")
    done("cluster", "init", "--preset", "vllm", "-o", "v.yaml", "--profile", "steps.yaml")
    for arguments, message in [
        (("study", "tiers", "--disk", "samsung"), "--disk: no 'samsung'"),
        (("study", "tiers", "--disk", "nvmeof-rdma-400g"), "--disk: nvmeof-rdma-400g has no capacity"),
        (("study", "tiers", "--write-amplification", "nan"), "--write-amplification: nan; allowed: 1 to 1000"),
        (("study", "sources", "--network", "rdma"), "--network: no 'rdma'"),
        (("study", "capacity", "--fidelity", "paper", "--config", "c.yaml"), "--fidelity: paper; allowed: without"),
        (("study", "sources", "-o", "s.png"), "s.png exists"),
        (("study", "tiers", "--config", "v.yaml"), "v.yaml: workers: role: vllm: no picture is made of these"),
        (("study", "cliff", "--profile", "none.yaml"), "none.yaml: No such file"),
        (("study", "capacity", "--trace", "none.jsonl"), "none.jsonl: No such file"),
    ]:
        assert message in refused(*arguments, "-q")
