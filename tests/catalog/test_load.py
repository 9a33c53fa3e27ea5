"""Built-in files, overlays, and what is refused."""

from __future__ import annotations

import math
import os
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from kvsweep.catalog.load import FILES, Catalog, load
from kvsweep.catalog.specs import USER_SOURCE, Gpu, Link
from kvsweep.errors import InputError

CATALOG = load()

# The published tables, every row; cost and all rates in base units.
REFERENCE_GPUS = """
H200 4.8e+12 1.41e+11 4e+15 9e+11 40000
H100 3.36e+12 8e+10 1.979e+15 9e+11 24500
A100 2.039e+12 8e+10 3.12e+14 6e+11 12000
RTX6000 9.6e+11 4.8e+10 1.82e+14 3.2e+10 8000
V100 8.97e+11 3.2e+10 1.25e+14 3e+11 3000
A5000 7.68e+11 2.4e+10 5.5e+13 1.12e+11 2300
High-End 4.8e+12 1.41e+11 4e+15 0 40000
Mid-Range 2.039e+12 8e+10 3.12e+14 0 12000
"""
REFERENCE_DRAMS = """
DDR5-6000 8.5e+10 3.2e+10 500
DDR5-7200 8.1e+10 3.2e+10 490
DDR5-5600 6.2e+10 3.2e+10 280
DDR4-3200 3e+10 1.6e+10 150
DDR4-2133 2.5e+10 1.6e+10 120
DDR3-1600 2e+10 8e+09 60
DDR4-2400 2.6e+10 1.6e+10 130
DDR4-2666 2.8e+10 1.6e+10 140
DDR5-4800 5.5e+10 3.2e+10 250
DDR5-6400 7.5e+10 3.2e+10 400
DDR5-8000 9.5e+10 4.8e+10 700
LPDDR5X-8533 1.02e+11 3.2e+10 600
DDR5 8.5e+10 3.2e+10 500
DDR4 3e+10 1.6e+10 150
"""
REFERENCE_DISKS = """
HDD 1e+08 4e+12 100
X110 3e+08 2e+12 200
M550 4e+08 5.12e+11 150
NVMe980 2e+09 2e+12 300
NVMeT700 5e+09 4e+12 500
NVMeT700R0 1e+10 8e+12 1000
NVMeT700R5 2e+10 1.6e+13 2000
HDD5400 8e+07 4e+12 80
HDDR0x2 2e+08 8e+12 200
HDDR0x5 5e+08 2e+13 500
SATA870 5.6e+08 4e+12 250
SATAR0x4 1.8e+09 8e+12 800
NVMeGen3R0 4e+09 4e+12 600
NVMe990 7e+09 4e+12 400
NVMeGen5 1.2e+10 2e+12 350
NVMeGen4R0x4 2.4e+10 8e+12 1600
RDMADram 2.5e+10 1e+12 3000
NVMeGen5R0x4 4.5e+10 8e+12 1400
CXLFlash 6.4e+10 8e+12 6000
NVMeGen5R0x8 8e+10 1.6e+13 2800
CXLMem 1.28e+11 2e+12 9000
SATA 3e+08 2e+12 200
NVMe 2e+09 2e+12 500
"""
REFERENCE_LINKS = """
PCIe3 1.6e+10 15
PCIe4 3.2e+10 90
PCIe5 6.4e+10 200
NVLink3 6e+11 150
NVLink4 9e+11 800
NVLink5 1.8e+12 1600
NVLink6 3.6e+12 3200
PCIe 3.2e+10 90
NVLink 6e+11 150
"""
REFERENCE_MODELS = """
llama3-8b 8e+09 16 2e+06 0.5
llama3-70b 7e+10 16 2e+06 0.5
mistral-7b 7e+09 16 2e+06 0.5
qwen2-32b 3.2e+10 16 2e+06 0.5
"""
REFERENCE_NAMES = """
gpus RTX6000 RTX 6000 Ada
gpus V100 Tesla V100
gpus A5000 RTX A5000
disks NVMe980 SSD NVMe 980 M.2
disks NVMeT700R5 SSD NVMe T700 M.2 (Raid 5)
disks RDMADram Remote DRAM (RDMA)
disks NVMe NVMe SSD
links PCIe4 PCIe 4.0 x16
links NVLink NVLink
models llama3-8b Llama 3 8B
"""
STACKS = """
h200 H200 DDR5 NVMe NVLink
a5000 A5000 DDR5 NVMe NVLink
a100_ddr5_nvme A100 DDR5 NVMe NVLink
a100_ddr4_nvme A100 DDR4 NVMe NVLink
a100_ddr4_sata A100 DDR4 SATA PCIe
"""


@pytest.mark.parametrize(
    ("kind", "columns", "table"),
    [
        ("gpus", "hbm_bandwidth hbm_capacity peak_flops max_link_bandwidth cost", REFERENCE_GPUS),
        ("drams", "bandwidth capacity cost", REFERENCE_DRAMS),
        ("disks", "bandwidth capacity cost", REFERENCE_DISKS),
        ("links", "bandwidth cost", REFERENCE_LINKS),
        ("models", "params tokens_per_block bytes_per_block gpu_eta", REFERENCE_MODELS),
    ],
)
def test_reference_rows_are_kept_exactly(kind: str, columns: str, table: str) -> None:
    entries = CATALOG.entries(kind)
    rows = [line.split() for line in table.strip().splitlines()]
    for key, *numbers in rows:
        found = [getattr(entries[key], column) for column in columns.split()]
        assert found == [float(number) for number in numbers], key
        assert all(type(number) is float for number in found), key
    references = [key for key, entry in entries.items() if getattr(entry, "family", "") == "reference"]
    assert references == [key for key, *_ in rows]


def test_reference_names() -> None:
    for line in REFERENCE_NAMES.strip().splitlines():
        kind, key, name = line.split(" ", 2)
        assert CATALOG.entries(kind)[key].name == name
    assert all(entry.name == key for key, entry in CATALOG.drams.items() if entry.family == "reference")


def test_stacks() -> None:
    rows = [line.split() for line in STACKS.strip().splitlines()]
    assert [[key, s.gpu, s.dram, s.disk, s.link] for key, s in CATALOG.stacks.items()] == rows
    assert all((stack.gpu_count, stack.dram_count) == (1, 4) for stack in CATALOG.stacks.values())


def test_every_row_of_the_fact_tables_is_there() -> None:
    count = {
        kind: sum(getattr(entry, "family", "") == "datasheet" for entry in CATALOG.entries(kind).values())
        for kind in FILES
    }
    assert count["gpus"] == 31 + 8  # and the L20Z, which has no public sheet, and seven from memory
    assert count["models"] == 37 + 28 and count["links"] == 24  # and those counted from configs
    assert (count["drams"], count["disks"]) == (23, 40 + 5)  # 63 memories and drives, and five shared stores
    assert len(CATALOG.prices) == 60 and all(price.date for price in CATALOG.prices.values())


def test_every_figure_has_a_source_and_none_is_unused() -> None:
    used = {USER_SOURCE}
    for kind in FILES:
        for entry in CATALOG.entries(kind).values():
            groups = [getattr(entry, field.name) for field in fields(entry)]
            for record in (entry, *(group for group in groups if is_dataclass(group))):
                assert record.source != USER_SOURCE, (kind, entry.key)  # type: ignore[union-attr]
                used.add(record.source)  # type: ignore[union-attr]
    assert set(CATALOG.sources) - used == {"estimate", "memory", "by-analogy"} - used


def test_l20z_is_assumed_throughout() -> None:
    gpu = CATALOG.gpus["l20z"]
    assert gpu.kind == "assumed" and "67 GB" in gpu.note
    for group in (gpu.compute, gpu.memory, gpu.host_link, gpu.peer_link):
        assert group is not None and group.kind == "assumed"
    # Two of them hold Qwen3-32B in bf16 and 262144 tokens of KV: 67 GB each.
    shape = CATALOG.models["qwen3-32b"]
    assert gpu.hbm_capacity > (2 * shape.params + 262_144 * shape.bytes_per_block / 16) / 2


def test_figures_the_flat_fields_leave_out() -> None:
    h100 = CATALOG.gpus["h100-sxm"]
    assert h100.compute is not None and h100.measured_compute is not None
    assert h100.visible_memory is not None and h100.host_link is not None and h100.peer_link is not None
    assert (h100.peak_flops, h100.compute.fp8_flops, h100.measured_compute.bf16_flops) == (9.89e14, 1.979e15, 9.56e14)
    assert (h100.hbm_capacity, h100.visible_memory.capacity_bytes) == (8e10, 85520809984)
    assert (h100.host_link.bytes_per_s, h100.peer_link.bytes_per_s) == (6.3e10, 4.5e11)
    assert CATALOG.gpus["l4"].peer_link is None and CATALOG.gpus["t4"].peak_flops == 6.513e13
    pcie = CATALOG.links["pcie5-x16"]
    assert pcie.effective is not None and pcie.latency is not None
    assert (pcie.bandwidth, pcie.effective.low_bytes_per_s, pcie.latency.seconds) == (5.56e10, 5e10, 1e-5)
    assert CATALOG.disks["3fs-client"].capacity == math.inf


def test_views_are_read_only() -> None:
    with pytest.raises(TypeError):
        CATALOG.gpus["X"] = CATALOG.gpus["H200"]  # type: ignore[index]


def test_part_names_the_nearest_key() -> None:
    assert CATALOG.part("gpus", "H200", "--gpu") is CATALOG.gpus["H200"]
    with pytest.raises(InputError, match=r"^--gpu: no 'h200'; did you mean 'H200'\? choose from H200, H100, "):
        CATALOG.part("gpus", "h200", "--gpu")
    with pytest.raises(InputError, match="^catalog kind: no 'gpu'; did you mean 'gpus'"):
        CATALOG.part("gpu", "H200", "--gpu")


# ---- Overlays ----


def overlay(directory: Path, **files: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / f"{name}.yaml").write_text(text, encoding="utf-8")
    return directory


def refusal(directory: Path) -> str:
    with pytest.raises(InputError) as caught:
        load([directory])
    return str(caught.value).replace(str(directory) + os.sep, "").replace(str(directory), "DIR")


NEW_GPU = "Mine: {peak_flops: 1.0e+15, hbm_bandwidth: 2.0e+12, hbm_capacity: 8.0e+10}\n"


def test_overlay_adds_an_entry(tmp_path: Path) -> None:
    catalog = load([overlay(tmp_path, gpus=NEW_GPU)])
    assert list(catalog.gpus)[-1] == "Mine" and catalog.gpus["Mine"].peak_flops == 1e15
    assert {**catalog.gpus, "Mine": None} == {**CATALOG.gpus, "Mine": None}
    assert catalog.disks == CATALOG.disks
    assert "Mine" not in load().gpus


def test_overlay_replaces_single_fields(tmp_path: Path) -> None:
    text = "PCIe4: {bandwidth: 2.5e+10}\npcie5-x16: {latency: {seconds: 5.0e-06, source: estimate}, note: mine}\n"
    links = load([overlay(tmp_path, links=text)]).links
    assert links["PCIe4"] == Link(key="PCIe4", name="PCIe 4.0 x16", bandwidth=2.5e10, cost=90.0, family="reference",
                                  note=CATALOG.links["PCIe4"].note)  # fmt: skip
    changed, before = links["pcie5-x16"], CATALOG.links["pcie5-x16"]
    assert changed.effective == before.effective and changed.source == before.source and changed.note == "mine"
    assert changed.latency is not None and changed.latency.seconds == 5e-6


def test_changed_figures_without_a_source_are_the_users_own(tmp_path: Path) -> None:
    text = "h100-sxm: {compute: {bf16_flops: 8.0e+14}, release: null}\n"
    gpu = load([overlay(tmp_path, gpus=text)]).gpus["h100-sxm"]
    assert gpu.compute is not None
    assert (gpu.compute.source, gpu.compute.kind, gpu.compute.fp8_flops) == (USER_SOURCE, "assumed", 1.979e15)
    assert (gpu.peak_flops, gpu.source, gpu.release) == (8e14, USER_SOURCE, None)


def test_overlay_with_all_fields_replaces_an_entry(tmp_path: Path) -> None:
    text = "PCIe: {name: mine, bandwidth: 1.0e+10, cost: 1, source: here, kind: measured, note: n}\n"
    links = load([overlay(tmp_path, links=text, sources="here: our bench\n")]).links
    assert links["PCIe"] == Link(key="PCIe", name="mine", bandwidth=1e10, cost=1.0, source="here", kind="measured",
                                 note="n", family="reference")  # fmt: skip


def test_later_overlays_win_and_the_environment_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = overlay(tmp_path / "a", links="PCIe: {bandwidth: 1.0e+10}\nPCIe3: {bandwidth: 1.0e+10}\n")
    second = overlay(tmp_path / "b", links="PCIe: {bandwidth: 2.0e+10}\n")
    third = overlay(tmp_path / "c", links="PCIe: {bandwidth: 3.0e+10}\n")
    monkeypatch.setenv("KVSWEEP_HARDWARE", f"{first}{os.pathsep}{second}{os.pathsep}")
    assert load().links["PCIe"].bandwidth == 2e10
    assert load([third]).links["PCIe"].bandwidth == 3e10
    assert load([third]).links["PCIe3"].bandwidth == 1e10
    monkeypatch.setenv("KVSWEEP_HARDWARE", str(tmp_path / "none"))
    with pytest.raises(InputError, match="^KVSWEEP_HARDWARE: '.*none' is not a directory$"):
        load()


def test_edits_of_overlay_files_are_seen(tmp_path: Path) -> None:
    assert load([overlay(tmp_path, links="PCIe: {bandwidth: 1.0e+10}\n")]).links["PCIe"].bandwidth == 1e10
    assert load([overlay(tmp_path, links="PCIe: {bandwidth: 4.0e+10}\n")]).links["PCIe"].bandwidth == 4e10


def test_stack_may_use_parts_of_the_same_overlay(tmp_path: Path) -> None:
    text = "mine: {gpu: Mine, dram: DDR5, disk: NVMe, link: PCIe5}\n"
    stack = load([overlay(tmp_path, gpus=NEW_GPU, stacks=text)]).stacks["mine"]
    assert (stack.gpu, stack.gpu_count, stack.dram_count) == ("Mine", 1, 4)


def test_hash_follows_content_alone(tmp_path: Path) -> None:
    here = load([overlay(tmp_path / "a", gpus=NEW_GPU)])
    there = load([overlay(tmp_path / "b", gpus="# same\n" + NEW_GPU.replace("8.0e+10", "80000000000"))])
    assert here.sha256 == there.sha256 != CATALOG.sha256
    assert load().sha256 == CATALOG.sha256 and len(CATALOG.sha256) == 64
    assert load([overlay(tmp_path / "c", gpus="")]).sha256 == CATALOG.sha256


def test_directories_that_are_no_overlay(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    assert refusal(missing) == "hardware directory: 'DIR' is not a directory"
    known = "gpus.yaml, dram.yaml, disks.yaml, links.yaml, models.yaml, stacks.yaml, prices.yaml, sources.yaml"
    empty = overlay(tmp_path / "empty")
    (empty / "README.md").write_text("not a catalog")
    assert refusal(empty) == f"hardware directory: 'DIR' has no catalog file; allowed: any of {known}"
    misspelt = overlay(tmp_path / "misspelt", gpu="")
    expected = "hardware directory: DIR: no 'gpu.yaml'; did you mean 'gpus.yaml'? choose from "
    assert refusal(misspelt) == expected + known


def test_hidden_and_other_files_are_left_alone(tmp_path: Path) -> None:
    directory = overlay(tmp_path, gpus=NEW_GPU)
    (directory / ".gpus.yaml").write_text("[")
    (directory / "notes.txt").write_text("[")
    assert "Mine" in load([directory]).gpus


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("gpus", "H200: {peak_flops: fast}",
         "gpus.yaml: H200: peak_flops: 'fast' is not a number, optionally with one of FLOP/s GFLOP/s TFLOP/s PFLOP/s; "
         "allowed: 1e+09 to 1e+18 FLOP/s"),
        ("gpus", "H200: {hbm_bandwidth: 4800}",
         "gpus.yaml: H200: hbm_bandwidth: 4800 is out of range; allowed: 1e+09 to 1e+15 byte/s"),
        ("gpus", "X: {name: a}", "gpus.yaml: X: peak_flops: missing; allowed: 1e+09 to 1e+18 FLOP/s, "
         "or give compute.bf16_flops or compute.fp16_flops"),
        ("gpus", "X:\n  name: a\n  name: b", "gpus.yaml:3: key 'name' given twice, first on line 2; allowed: once"),
        ("gpus", "H200: {}\nH200: {}", "gpus.yaml:2: key 'H200' given twice, first on line 1; allowed: once"),
        ("gpus", "X: !!python/object:os.system {}", "gpus.yaml:1: 'python/object:os.system' is no plain value; "
         "allowed: text, numbers, true, false, null, lists, mappings"),
        ("gpus", "[1]", "gpus.yaml: [1] is not a mapping; allowed: one block of fields under each key"),
        ("gpus", "4090: {}", "gpus.yaml: key 4090 is not text; put it in quotes"),
        ("gpus", "a b: {}", "gpus.yaml: a b: key; allowed: letters, digits and . _ + - after a letter or digit"),
        ("sources", "a: 1", "sources.yaml: a: 1 is not text; put it in quotes"),
    ],
)  # fmt: skip
def test_bad_entries_are_refused(tmp_path: Path, file: str, text: str, message: str) -> None:
    assert refusal(overlay(tmp_path, **{file: text})) == message


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("gpus", "X:\n  - ]", "gpus.yaml:2: broken YAML: "),
        ("links", "PCIe: {source: kvc-tiersin}",
         "links.yaml: PCIe: source: no 'kvc-tiersin'; did you mean 'kvc-tiersim'? choose from "),
        ("stacks", "h200: {gpu: H20O}", "stacks.yaml: h200: gpu: no 'H20O'; did you mean 'h20'? choose from H200, "),
        ("stacks", "h200: {disk: tape}", "stacks.yaml: h200: disk: no 'tape'; "),
    ],
)  # fmt: skip
def test_broken_files_and_unknown_names_are_refused(tmp_path: Path, file: str, text: str, message: str) -> None:
    assert refusal(overlay(tmp_path, **{file: text})).startswith(message)


def test_source_of_a_group_is_checked(tmp_path: Path) -> None:
    text = NEW_GPU.replace("}", ", power: {tdp_watts: 700, source: nowhere}}")
    assert refusal(overlay(tmp_path, gpus=text)).startswith("gpus.yaml: Mine: power: source: no 'nowhere'; ")


@pytest.mark.parametrize("data", [b"\xff\xfe\xfa", b"a: \x01", b"X: {cost: " + b"9" * 5000 + b"}"])
def test_unreadable_bytes_are_refused(tmp_path: Path, data: bytes) -> None:
    directory = overlay(tmp_path, gpus="")
    (directory / "gpus.yaml").write_bytes(data)
    assert refusal(directory).startswith("gpus.yaml: not readable as YAML: ")


def test_message_blames_the_right_one_of_two_overlays(tmp_path: Path) -> None:
    broken = overlay(tmp_path / "a", gpus="H200: {cost: -1}\n")
    mending = overlay(tmp_path / "b", gpus="H200: {cost: 1}\n")
    with pytest.raises(InputError) as caught:
        load([broken, mending])
    assert str(caught.value).startswith(f"{broken / 'gpus.yaml'}: H200: cost: ")


def test_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    text = "H200: &both {cost: 1}\nH100:\n  <<: *both\n  cost: 2\n"
    gpus = load([overlay(tmp_path, gpus=text)]).gpus
    assert (gpus["H200"].cost, gpus["H100"].cost) == (1, 2)


def test_package_offers_the_loader() -> None:
    import kvsweep.catalog

    assert kvsweep.catalog.load is load and kvsweep.catalog.Catalog is Catalog
    assert isinstance(kvsweep.catalog.load().gpus["A100"], Gpu)


def test_importing_the_catalog_stays_light() -> None:
    import subprocess
    import sys

    code = "import sys, kvsweep.catalog; print([m for m in ('numpy', 'numba', 'xarray') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


if "KVSWEEP_DATA" in os.environ:
    from tests.catalog.tables import differences

    def test_datasheet_rows_equal_the_fact_tables() -> None:
        assert differences(CATALOG, Path(os.environ["KVSWEEP_DATA"]) / "catalog") == []
