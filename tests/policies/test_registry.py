"""Finding policies: files, entry points, and broken ones that never harm the others."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

import kvsweep
from kvsweep.errors import InputError, PolicyError
from kvsweep.policies import registry
from kvsweep.policies.registry import Policy, PolicySet, load_policies
from tests.policies.test_policies import context

LINEAR = ["performance_aware", "slowest_tier_first", "default_policy", "all_compute"]
BUILT_IN = [
    "performance_aware", "slowest_tier_first", "front_k_overlap", "cake", "default_policy", "min_of_two",
    "positional_breakeven", "hicache_timeout", "shadow_price", "all_compute",
]  # fmt: skip

SOURCE = """
name = "half"
label = "Half"
description = "Recompute half of the hits."
color = "#123456"
order = 40
recomputes = "any"
modes = ("halved",)

def decide(ctx):
    return ctx.hit_blocks / 2, "halved"
"""


def written(folder: Path, source: str, name: str = "half.py") -> Path:
    path = folder / name
    path.write_text(source)
    return path


def test_built_in_policies_in_display_order() -> None:
    policies = load_policies()
    assert list(policies) == BUILT_IN
    assert policies.problems == ()
    assert policies["performance_aware"].label == "IO-aware policy"
    assert policies["performance_aware"].modes == ("balanced", "best_effort")
    assert list(policies.unasked(False)) == LINEAR and list(policies.unasked(True)) == BUILT_IN
    assert [policies[name].color for name in LINEAR] == ["#4f8cff", "#7a52c7", "#0e8f8f", "#33bf59"]
    assert [policies[name].order for name in LINEAR] == [10, 15, 20, 30]


def test_a_dropped_file_is_found_and_its_edits_are_seen(tmp_path: Path) -> None:
    path = written(tmp_path, SOURCE)
    assert load_policies([path])["half"].choose(context()) == (450.0, "halved")
    path.write_text(SOURCE.replace("/ 2", "/ 3"))
    assert load_policies([path])["half"].choose(context()) == (300.0, "halved")


BROKEN = {
    "syntax": (SOURCE + "\ndef decide(ctx:\n", "SyntaxError in line"),
    "raises": ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
    "exits": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "imports": ("import no_such_module_here", "ModuleNotFoundError"),
    "nothing": ("", "name is missing"),
    "label": (SOURCE.replace('"Half"', "3"), "label = 3; allowed: a line of text"),
    "newline": (SOURCE.replace('"Half"', '"a\\nb"'), "label = 'a\\nb'; allowed: a line of text"),
    "color": (SOURCE.replace("#123456", "red"), "color = 'red'; allowed: #rrggbb"),
    "order": (SOURCE.replace("order = 40", "order = float('nan')"), "order = nan; allowed: a finite number"),
    "side": (SOURCE.replace('"any"', '"back"'), "recomputes = 'back'; allowed: any | front | tail"),
    "modes": (SOURCE.replace('("halved",)', '("a b",)'), "modes = ('a b',)"),
    "no modes": (SOURCE.replace('("halved",)', "()"), "modes = ()"),
    "arguments": (SOURCE.replace("decide(ctx)", "decide(a, b)"), "allowed: a function decide(ctx)"),
    "name": (SOURCE.replace('"half"', '"1 half"'), "name = '1 half'"),
    "taken": (SOURCE.replace('"half"', '"all_compute"'), "already taken by built in all_compute"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_named_and_harms_no_other(kind: str, tmp_path: Path) -> None:
    source, message = BROKEN[kind]
    broken, sound = written(tmp_path, source, "broken.py"), written(tmp_path, SOURCE, "sound.py")
    policies = load_policies([broken, sound])
    assert list(policies) == [*BUILT_IN, "half"]
    (problem,) = policies.problems
    assert problem.startswith(f"policy file {broken}: left out: ")
    assert message in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1 / 0, 'halved'", "ZeroDivisionError"),
        ("return float('nan'), 'halved'", "returned NaN blocks"),
        ("return 0.0, 'other'", "mode 'other'; allowed: halved or an index"),
        ("return 0.0, 1", "mode 1; allowed: halved or an index"),
        ("return 0.0", "decide failed"),
        ("return 'many', 'halved'", "decide failed"),
    ],
)
def test_a_nonsensical_decision_is_refused_by_name(body: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, SOURCE.replace('return ctx.hit_blocks / 2, "halved"', body))
    with pytest.raises(PolicyError, match="^policy half ") as caught:
        load_policies([path])["half"].choose(context())
    assert message in str(caught.value)
    result = kvsweep.simulate(policy_files=[path])
    assert "half" not in result["slo_summary"] and list(result["slo_summary"]) == LINEAR
    assert any("policy half" in warning for warning in result["warnings"])


def test_indices_and_labels_both_name_a_mode(tmp_path: Path) -> None:
    path = written(tmp_path, SOURCE.replace('/ 2, "halved"', "/ 2, 0"))
    assert load_policies([path])["half"].choose(context()) == (450.0, "halved")


def test_entry_points_add_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, SOURCE, "kvsweep_half_plugin.py")
    monkeypatch.syspath_prepend(tmp_path)
    points = [
        importlib.metadata.EntryPoint("half", "kvsweep_half_plugin", registry.ENTRY_POINT_GROUP),
        importlib.metadata.EntryPoint("gone", "kvsweep_gone_plugin", registry.ENTRY_POINT_GROUP),
        importlib.metadata.EntryPoint("json", "json:loads", registry.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr(registry, "installed", lambda: points)
    policies = load_policies()
    assert list(policies) == [*BUILT_IN, "half"]
    assert [problem.split(":")[0] for problem in policies.problems] == [
        "entry point gone = kvsweep_gone_plugin", "entry point json = json",
    ]  # fmt: skip


def test_selecting_keeps_display_order_and_refuses_unknown_ids() -> None:
    policies = load_policies()
    assert list(policies.select(["all_compute", "performance_aware"], "x")) == ["performance_aware", "all_compute"]
    with pytest.raises(InputError, match="^--policies: no 'al_compute'; did you mean 'all_compute'"):
        policies.select(["al_compute"], "--policies")


def test_ties_in_order_are_broken_by_name() -> None:
    half = load_policies()["all_compute"]
    twins = [Policy(**{**vars(half), "name": name}) for name in ("b", "a")]
    assert list(PolicySet(twins)) == ["a", "b"]


@pytest.mark.parametrize("name", ["speedups", "placement", "total_blocks"])
def test_names_of_a_result_row_are_no_policy_names(name: str, tmp_path: Path) -> None:
    policies = load_policies([written(tmp_path, SOURCE.replace('"half"', f'"{name}"'))])
    assert list(policies) == BUILT_IN
    assert f"name = '{name}'; allowed: " in policies.problems[0]


def test_what_a_policy_prints_stays_off_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_policies([written(tmp_path, "print('hello')\n" + SOURCE)])
    assert capsys.readouterr() == ("", "hello\n")


@pytest.mark.parametrize("source", ["async def decide(ctx):\n    return 0.0, 0\n", "def decide(ctx):\n    yield 0.0\n"])
def test_a_decision_is_a_plain_function(source: str, tmp_path: Path) -> None:
    policies = load_policies([written(tmp_path, SOURCE.partition("def decide")[0] + source)])
    assert "neither generator nor coroutine" in policies.problems[0]
