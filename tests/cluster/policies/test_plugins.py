"""Gateway and eviction policies from files: found, run as compiled as plain, and refused by name."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import kvsweep
from kvsweep.cluster.policies.plugins import GatewayContext, IdleContext, Plugins, select_plugin
from kvsweep.cluster.setup.initial_state import initial_state
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.simulation.cores import compiled_run, plain_run, run_core
from kvsweep.errors import InputError, PolicyError
from kvsweep.jit.functions import CONTEXT_METHODS
from kvsweep.policies import load_policies
from tests.cluster.engine.core import config_of, profile_of
from tests.cluster.engine.samples import random_case as random_engine_case
from tests.cluster.paper.test_twin import EVICTION_FILE, FRONT_POLICY, GATEWAY_FILE, RETENTION_FILE, random_trace
from tests.cluster.samples import PAGE, POLICIES, cluster, fuzz_profile, pages, profile, trace

LAST = """kind, name = "gateway", "last"


def cost(ctx):
    return -ctx.worker
"""
MOST_RECENT = """kind, name = "eviction", "most_recent"


def key(ctx):
    return -ctx.released_seconds
"""

TENTH = """kind, name = "retention", "tenth"


def ttl(ctx):
    return 0.1
"""


def written(folder: Path, *sources: str) -> list[Path]:
    files = [folder / f"policy{i}.py" for i in range(len(sources))]
    for file, source in zip(files, sources, strict=True):
        file.write_text(source)
    return files


def run(files: list[Path], requests: list[Any] | None = None, **changes: Any) -> xr.Dataset:
    made = trace(requests or [(float(i), 257, 1, pages(10 * i, 4)) for i in range(4)])
    return kvsweep.cluster.run(made, cluster(**changes), profile(), policy_files=files, check=True)


def test_the_least_cost_wins_and_the_result_names_the_policy(tmp_path: Path, fidelity: str) -> None:
    files = written(tmp_path, LAST, MOST_RECENT)
    ds = run(files, prefill={"count": 3}, decode={"count": 2}, gateway={"policy": "last"}, fidelity=fidelity)
    assert set(ds["prefill_worker"].values) == {2} and set(ds["decode_worker"].values) == {4}
    assert ds.attrs["kvsweep_gateway"] == f"last (policy file {files[0]})"
    assert ds.attrs["kvsweep_eviction"] == "lru (built in)"
    if fidelity == "engine":
        assert "gateway: last" in ds.attrs["kvsweep_extensions"]


def test_the_least_key_goes_first(tmp_path: Path, fidelity: str) -> None:
    """Room for two of three prompts: the third costs the one before it its pages, and the first is there again."""
    files = written(tmp_path, LAST, MOST_RECENT)
    # The third is short: the engine would let both others go for the page it asks for beyond.
    kinds = ((0, 4), (1, 4), (2, 2), (0, 4))
    asked = [(float(i), PAGE * count + 1, 1, pages(10 * name, count)) for i, (name, count) in enumerate(kinds)]
    small = {"device_tokens": 640, "host_tokens": 0}
    ds = run(files, asked, prefill=small, eviction={"policy": "most_recent"}, fidelity=fidelity)
    assert ds["hit_tokens"].values[-1, 0] == 256
    assert run(files, asked, prefill=small, fidelity=fidelity)["hit_tokens"].values[-1, 0] < 256
    assert ds.attrs["kvsweep_eviction"] == f"most_recent (policy file {files[1]})"
    if fidelity == "engine":
        assert "eviction: most_recent" in ds.attrs["kvsweep_extensions"]


def test_pages_stay_for_as_long_as_the_file_says(tmp_path: Path, fidelity: str) -> None:
    """What was used once stays for 3 s, what was used again for ever; both prompts come back after 5 or 6 s."""
    again = {"paper": 2.0, "engine": 3.0}[fidelity]  # engines count a request twice: with its step, and its handoff
    source = TENTH.replace("tenth", "uses").replace("return 0.1", f"return 3.0 if ctx.uses < {again} else 1e300")
    files = written(tmp_path, source)
    times = ((0.0, 0), (1.0, 0), (2.0, 1), (7.0, 0), (8.0, 1))
    asked = [(time, PAGE * 4 + 1, 1, pages(10 * name, 4)) for time, name in times]
    kept = {"policy": "uses", "check_seconds": 0.5}
    ds = run(files, asked, retention=kept, write={"policy": "none"}, fidelity=fidelity)
    assert ds["hit_tokens"].values[:, 0].tolist() == [0, 256, 0, 256, 0]
    assert ds["expirations"].values.sum() == 4
    assert ds.attrs["kvsweep_retention"] == f"uses (policy file {files[0]})"
    if fidelity == "engine":
        assert "retention: uses" in ds.attrs["kvsweep_extensions"]


@pytest.mark.parametrize("seed", range(40))
def test_a_file_that_always_says_the_same_is_the_idle_ttl(seed: int, tmp_path: Path, fidelity: str) -> None:
    made = random_trace(random.Random(seed), 4)
    small = {"count": 1 + seed % 2, "device_tokens": 60, "host_tokens": 48, "chunk_tokens": 16}
    one, other = (
        kvsweep.cluster.run(
            made, cluster(small, {"device_tokens": 400}, page_size=4, fidelity=fidelity,
                          retention={"seconds": 0.1, "check_seconds": 0.013, **kept}),
            fuzz_profile(), policy_files=written(tmp_path, TENTH), check=True,
        )
        for kept in ({"policy": "idle_ttl"}, {"policy": "tenth"})
    )  # fmt: skip
    assert one.drop_attrs().identical(other.drop_attrs())


@pytest.mark.parametrize("seed", range(10))
def test_compiled_and_uncompiled_are_equal_to_the_last_bit(seed: int, tmp_path: Path) -> None:
    files = written(tmp_path, GATEWAY_FILE, EVICTION_FILE, RETENTION_FILE)
    config = cluster(
        {"count": 3, "device_tokens": 64, "host_tokens": 48, "chunk_tokens": 16}, {"count": 2, "device_tokens": 400},
        page_size=4, gateway={"policy": "coarse"}, eviction={"policy": "mixed"},
        retention={"policy": "moody", "check_seconds": 0.01},
    )  # fmt: skip
    names = {"gateway": "coarse", "eviction": "mixed", "retention": "moody"}
    chosen = Plugins(**{kind: select_plugin(kind, name, files) for kind, name in names.items()})
    made, policy = random_trace(random.Random(seed), 4), POLICIES["default_policy"]
    one, two = (
        runs(initial_state(made, config, fuzz_profile(), policy), policy, chosen) for runs in (compiled_run, plain_run)
    )
    for name, array, other in zip(State._fields, one, two, strict=True):
        assert np.array_equal(array, other), name


DIVIDING = """
kind, name = "gateway", "dividing"
def cost(ctx):
    return 1.0 / (ctx.draw * 0.0) if ctx.worker == 0.0 else 1.0
"""


def test_a_run_by_the_plain_source_asks_compiled_policies(tmp_path: Path) -> None:
    """Which of the two makes a run is a matter of time, and where plain Python raises IEEE arithmetic goes on."""
    chosen = Plugins(gateway=select_plugin("gateway", "dividing", written(tmp_path, DIVIDING)))
    config = cluster({"count": 2, "device_tokens": 400}, page_size=4, gateway={"policy": "dividing"})
    made, policy = random_trace(random.Random(1), 4), POLICIES["default_policy"]
    one, two = (
        run_core(initial_state(made, config, fuzz_profile(), policy), policy, chosen, compile=compiled)
        for compiled in (False, True)
    )
    assert not one.is_compiled and two.is_compiled
    for name, array, other in zip(State._fields, one.run, two.run, strict=True):
        assert np.array_equal(array, other), name


@pytest.mark.parametrize("from_files", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_the_engine_is_the_same_compiled_to_the_last_bit(seed: int, from_files: bool, tmp_path: Path) -> None:
    """With any policies that are built in, and with a gateway, an eviction and a retention from files."""
    files = written(tmp_path, GATEWAY_FILE, EVICTION_FILE, RETENTION_FILE, FRONT_POLICY)
    made, rules, service = random_engine_case(seed)
    if from_files:
        rules.gateway, rules.eviction, rules.retention_file, rules.ttl = "coarse", "mixed", "moody", (1.0, 0.01)
    else:
        rules.retention_file, rules.eviction = "", rules.eviction if rules.eviction != "mixed" else "lfu"
    config, service = config_of(rules), profile_of(rules, service)
    policy = load_policies(files[3:])[config.retrieval.policy]
    names = {kind: getattr(config, kind).policy for kind in ("gateway", "eviction", "retention")}
    chosen = Plugins(**{kind: select_plugin(kind, name, files) for kind, name in names.items()})
    assert [plugin is not None for plugin in chosen] == [from_files] * 3
    one, two = (
        runs(initial_state(made, config, service, policy), policy, chosen) for runs in (compiled_run, plain_run)
    )
    for name, array, other in zip(State._fields, one, two, strict=True):
        assert array.dtype == other.dtype and array.tobytes() == other.tobytes(), name


@pytest.mark.parametrize(
    ("kind", "source", "message"),
    [
        (
            "gateway",
            LAST.replace("-ctx.worker", "float('nan')"),
            "policy last .*at 0.000000 s: cost failed or returned NaN",
        ),
        (
            "eviction",
            MOST_RECENT.replace("-ctx.released", "float('nan') * ctx.released"),
            "key failed or returned NaN; allowed: a number",
        ),
        ("gateway", LAST.replace("-ctx.worker", "ctx.nothing"), "last .*: cannot be compiled: .*allowed: arithmetic"),
        ("gateway", LAST.replace("cost", "costs"), "no 'last': .*left out: cost is missing or not plain; allowed: a f"),
        (
            "gateway",
            LAST.replace('"gateway"', '"gate"'),
            "kind = 'gate'; allowed: retrieval, gateway, eviction, retention",
        ),
        ("retention", TENTH.replace("0.1", "ctx.uses * float('nan')"), "policy tenth .*: ttl failed or returned NaN"),
        ("retention", TENTH.replace('"tenth"', '"none"'), "name 'none' is already taken by a built-in policy"),
        ("retention", LAST, "retention: policy: no 'tenth'; .*choose from none, idle_ttl, hazard_ttl$"),
        ("gateway", LAST.replace('"last"', '"a b"'), "no 'last': .*name = 'a b'; allowed: a name of letters"),
        ("gateway", "raise RuntimeError('no luck')", "no 'last': policy file .*left out: RuntimeError: no luck"),
        ("gateway", LAST.replace('"last"', '"lest"'), "gateway: policy: no 'last'; .*choose from round_robin.* lest"),
        ("gateway", LAST.replace('"last"', '"random"'), "name 'random' is already taken by a built-in policy"),
        ("eviction", LAST, "eviction: policy: no 'most_recent'; .*choose from lru, fifo, lfu, gdsf, belady, tlru$"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(
    kind: str, source: str, message: str, tmp_path: Path, fidelity: str
) -> None:
    name = {"gateway": "last", "eviction": "most_recent", "retention": "tenth"}[kind]
    with pytest.raises(InputError, match=message) as error:
        run(written(tmp_path, source), prefill={"device_tokens": 640}, fidelity=fidelity, **{kind: {"policy": name}})
    assert "\n" not in str(error.value)


def test_a_failing_policy_is_named_by_the_plain_source(tmp_path: Path) -> None:
    plugin = select_plugin("gateway", "last", written(tmp_path, LAST.replace("-ctx.worker", "1 / 0")))
    assert plugin is not None
    with pytest.raises(PolicyError, match="gateway policy last .*: cost failed: ZeroDivisionError"):
        plugin.ask(*range(len(GatewayContext._fields)))


def test_other_commands_leave_them_out_and_say_so(tmp_path: Path) -> None:
    (problem,) = load_policies(written(tmp_path, LAST)).problems
    assert problem.endswith("left out: a policy of kind gateway is for `kvsweep cluster run`")


def test_no_field_is_called_like_a_helper_of_the_analytic_context() -> None:
    """Numba registers those helpers for named tuples of any kind."""
    assert not {*GatewayContext._fields, *IdleContext._fields} & set(CONTEXT_METHODS)
