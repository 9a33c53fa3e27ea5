"""``kvsweep cluster init``: which profile it takes, from which catalog, and what it blames."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.shell_completion import BashComplete

from kvsweep.cli import main
from tests.cli_runner import done, refused


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_vllm_workers_of_several_gpus_find_their_profile() -> None:
    for options in (("--tp", "4"), ()):
        told = done("cluster", "init", "--preset", "vllm", "--model", "llama-3.1-70b", *options, "--force").stderr
        assert "profile.yaml is h100-sxm-llama-3.1-70b-tp4, which comes with kvsweep" in told
        assert yaml.safe_load(Path("cluster.yaml").read_text())["workers"][0]["tp"] == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--model", "qwen3-8b"),
            "--model: no step profile of qwen3-8b on h100-sxm comes with kvsweep; allowed: llama-",
        ),
        (("--gpu", "l20z"), "--gpu: no step profile of l20z comes with kvsweep; those there are: a100-sxm-llama-"),
        (("--tp", "2"), "--tp: no step profile of llama-3.1-8b on 2 x h100-sxm comes with kvsweep; allowed: 1;"),
        (("--model", "llama-3.1-70b", "--tp", "8"), "--tp: no step profile of llama-3.1-70b on 8 x h100-sxm"),
    ],
)
def test_the_option_that_was_given_is_blamed(options: tuple[str, ...], message: str) -> None:
    assert refused("cluster", "init", "--preset", "vllm", *options).startswith(message)
    assert not list(Path().iterdir())


def test_a_roofline_of_one_s_own_gpu(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "gpus.yaml").write_text(
        "my-gpu:\n  name: Mine\n  peak_flops: 500 TFLOP/s\n  hbm_bandwidth: 3 TB/s\n  hbm_capacity: 96GB\n"
    )
    assert "--gpu" in refused("cluster", "init", "--gpu", "my-gpu")
    done("cluster", "init", "--gpu", "my-gpu", "--hardware", "mine")
    assert yaml.safe_load(Path("profile.yaml").read_text())["gpu"] == "my-gpu"


def test_presets_and_keys_complete_in_the_shell() -> None:
    complete = BashComplete(main, {}, "kvsweep", "_KVSWEEP_COMPLETE")

    def offered(*words: str) -> list[str]:
        return [item.value for item in complete.get_completions([*words[:-1]], words[-1])]

    assert offered("cluster", "init", "--preset", "qwen3-32b") == ["qwen3-32b-1p1d", "qwen3-32b-3p1d"]
    assert offered("cluster", "init", "--preset", "v") == ["vllm"]
    assert "h100-sxm" in offered("cluster", "init", "--gpu", "h100") and "qa" in offered(
        "trace", "generate", "--preset", ""
    )
    assert "h200" in offered("simulate", "--stack", "h2")
