"""One rule for every command that writes: what it reads survives, links are written through, devices stay devices."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kvsweep.cli import main
from kvsweep.cluster.inputs import profiles
from tests.cli_runner import GOOD_POLICY, done, refused

STEPS = "h100-sxm-llama-3.1-8b"
RUN = "arrival,prompt_tokens,output_tokens,ttft,e2e\n0,100,2,0.1,0.2\n1,100,2,0.1,0.2\n"
STUDY = "cluster: c.yaml\nprofile: {model: qwen3-8b, gpu: l20z, tp: 2}\ntrace: {generate: qa, sessions: 2}\n"
AXES = ("--x", "a", "--y", "b")

# Of each command that may overwrite: its arguments, in which IN is a file it reads and OUT.suffix one it writes.
ROWS: dict[str, list[str]] = {
    "simulate": ["--policy-file IN -o OUT.json"],
    "sweep": ["IN -o OUT.nc", "IN --report OUT.html", "--policy-file IN -o OUT.csv"],
    "overhead": ["--policy-file IN -o OUT.json"],
    "roofline": ["--model IN -o OUT.svg"],
    "report": ["IN -o OUT.html"],
    "compare": ["IN other.nc --report OUT.html", "other.nc IN --report OUT.html"],
    **{f"figures {name}": ["IN -o OUT.pdf"] for name in ("heatmap", "sufficient", "success", "pareto")},
    **{f"figures {name}": ["IN --x a --y b -o OUT.pdf"] for name in ("map", "winner")},
    "figures curve": ["IN --x a -o OUT.pdf"],
    "trace convert": ["IN -o OUT.jsonl", "IN -o OUT.csv.gz"],
    "trace sample": ["IN --share 0.5 -o OUT.jsonl"],
    "trace stats": ["IN -o OUT.json"],
    "cluster init": ["-o OUT.yaml --profile p.yaml", "-o c.yaml --profile OUT.yaml"],
    "cluster run": [
        f"{files} {out}" for out in ("-o OUT.nc", "-o o.nc --events OUT.json") for files in (
            "IN --config c --profile p", "t --config IN --profile p", "t --config c --profile IN",
            "t --config c --profile p --policy-file IN")
    ],
    "cluster sweep": ["IN -o OUT.nc", "IN --report OUT.html", "IN --dry-run -o OUT.nc", "IN --partial -o OUT.nc",
                      "s.yaml --policy-file IN -o OUT.nc"],
    **{f"study {name}": ["--trace IN -o OUT.pdf", "--profile-8b IN --data OUT.nc"] for name in ("affinity", "ttl")},
    "study replay": ["--trace IN --data OUT.nc"],
    **{f"study {name}": ["--profile IN -o OUT.pdf", "--profile IN --data OUT.nc"] for name in ("sources", "cliff")},
    "study capacity": ["--trace IN -o OUT.pdf", "--config IN --data OUT.nc"],
    "study tiers": ["--trace IN --data OUT.nc"],
    "study analytic": ["--trace IN -o OUT.html", "--policy-file IN --data OUT.nc"],
    "calibrate fit": ["IN --base p.yaml -o OUT.yaml", "--base IN s.csv -o OUT.yaml", "handoff=IN --base p -o OUT.yaml",
                      "FOLDER -o OUT.yaml"],
    "calibrate recalibrate": ["decode IN s.csv -o OUT.yaml", "decode p.yaml IN -o OUT.yaml"],
    "calibrate check": ["IN --source . --figure OUT.svg"],
    "validate": [f"IN --profile {STEPS} -o OUT.csv", f"run.csv --profile {STEPS} --workload IN -o OUT.csv"],
}  # fmt: skip
NO_INPUT = ("figures violins", "figures roofline", "figures permutations", "trace generate")


def commands(group: click.Group, way: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its name in full."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{way}{name} ")
        else:
            yield f"{way}{name}", command


def test_every_command_that_overwrites_is_below() -> None:
    forced = {name for name, command in commands(main) if any("--force" in param.opts for param in command.params)}
    assert forced == {*ROWS, *NO_INPUT}


CONTENTS = {"sweep": "hit_ratio: 0.5\n", "cluster sweep": STUDY, "validate": RUN}


@pytest.mark.parametrize(("command", "row"), [(command, row) for command, rows in ROWS.items() for row in rows])
def test_an_input_is_never_overwritten(command: str, row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = profiles.shipped()[STEPS].read_text()
    (tmp_path / "c.yaml").write_text("workers: [{role: vllm, tp: 1, n_blocks: 100}]\n")
    (tmp_path / "s.yaml").write_text(STUDY)
    (tmp_path / "run.csv").write_text(RUN)
    folder = tmp_path / "kernels"
    folder.mkdir()
    read = folder / "meta.yaml" if "FOLDER" in row else tmp_path / "in"
    read.write_text(GOOD_POLICY if "--policy-file IN" in row else shipped if "check" in command
                    else "" if "--workload" in row else CONTENTS.get(command, "text"))  # fmt: skip
    monkeypatch.setattr(profiles, "shipped_files", lambda: [read])
    before = read.read_bytes()
    words = row.replace("FOLDER", str(folder)).replace("IN", str(read)).split()
    (out,) = [word for word in words if word.startswith("OUT.")]
    os.symlink(read, out)
    message = refused(*command.split(), *words, "--force")
    assert f"{out} is an input, too; allowed: another name" in message
    assert read.read_bytes() == before and os.path.islink(out)


def test_files_named_in_a_study_are_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text("workers: [{role: vllm, tp: 1, n_blocks: 100}]\n")
    (tmp_path / "t.nc").write_text("trace")
    (tmp_path / "s.yaml").write_text(f"cluster: c.yaml\nprofile: {STEPS}\ntrace: t.nc\n")
    assert "--output: t.nc is an input, too" in refused("cluster", "sweep", "s.yaml", "-o", "t.nc", "--force")


def test_two_outputs_are_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.symlink("c.yaml", "p.yaml")
    for profile in ("c.yaml", "p.yaml", "./c.yaml"):
        message = refused("cluster", "init", "-o", "c.yaml", "--profile", profile)
        assert "is what --output writes, too" in message and not (tmp_path / "c.yaml").exists()


def test_links_are_written_through_and_devices_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far").mkdir()
    os.symlink("far/real.json", "link.json")
    for more in ((), ("--force",)):  # first to nothing, then over what is there
        done("simulate", "-o", "link.json", *more)
        assert os.readlink("link.json") == "far/real.json" and (tmp_path / "far" / "real.json").read_text()[0] == "{"
    assert sorted(os.listdir("far")) == ["real.json"]
    os.mkfifo("pipe.json")
    os.symlink("/dev/null", "null.json")
    for name in ("pipe.json", "null.json"):
        assert f"--output: {name} is a device, pipe or socket" in refused("simulate", "-o", name, "--force")
    assert not Path("pipe.json").is_file() and not Path("/dev/null").is_file()
