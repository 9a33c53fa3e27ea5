"""A seed and a file give the same bytes: again, in threads, in processes, compiled or as plain Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvsweep.cluster.inputs.config import read_config
from kvsweep.cluster.inputs.service_profile import read_profile
from kvsweep.cluster.outcome.dataset import Finished, dataset
from kvsweep.cluster.outcome.events import write_events
from kvsweep.cluster.simulation.run import finish
from kvsweep.results.netcdf import write_netcdf
from kvsweep.trace.read import read_trace
from tests.cli_runner import done
from tests.cluster.samples import cluster, fuzz_profile, trace

INPUTS = ("trace.jsonl", "cluster.yaml", "profile.yaml")
OUTPUTS = ("run.nc", "events.nc")
EPOCH = "1000000000"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fidelity: str) -> Path:
    """Return a folder with a trace, a cluster that draws lots, and a profile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH)
    done("cluster", "init", "--preset", "qwen3-8b-3p1d", "--fidelity", fidelity)
    config = yaml.safe_load(Path("cluster.yaml").read_text())
    config |= {"fidelity": fidelity, "gateway": {"policy": "power_of_two", "seed": 7}}
    Path("cluster.yaml").write_text(yaml.safe_dump(config))
    done("trace", "generate", "--preset", "coding", "--sessions", "2", "--seed", "3", "-o", "trace.jsonl", "-q")
    return tmp_path


def started(folder: Path, name: str, **environment: str) -> tuple[Path, subprocess.Popen[str]]:
    """Start `kvsweep cluster run` in a folder of its own; return folder and process."""
    own = folder / name
    own.mkdir()
    for file in INPUTS:
        shutil.copy(folder / file, own / file)
    command = [sys.executable, "-m", "kvsweep", "cluster", "run", "trace.jsonl", "--config", "cluster.yaml",
               "--profile", "profile.yaml", "-o", "run.nc", "--events", "events.nc", "-q"]  # fmt: skip
    return own, subprocess.Popen(command, cwd=own, env={**os.environ, **environment}, text=True)


def simulated(_: int) -> Finished:
    return finish(
        read_trace(Path("trace.jsonl")), read_config(Path("cluster.yaml")), read_profile(Path("profile.yaml"))
    )


def written(run: Finished) -> list[bytes]:
    write_netcdf(dataset(run), Path("run.nc"))
    for name in ("events.nc", "events.json"):
        write_events(run, Path(name))
    return [Path(name).read_bytes() for name in (*OUTPUTS, "events.json")]


def test_files_are_the_same_bytes_however_they_are_made(folder: Path) -> None:
    processes = [
        started(folder, "compiled", PYTHONHASHSEED="1"),
        started(folder, "beside it", PYTHONHASHSEED="2"),
        started(folder, "plain", NUMBA_DISABLE_JIT="1"),
    ]
    here = written(simulated(0))
    assert all(len(content) > 1000 for content in here)
    # Simulations run at once, and are written one after the other, as HDF5 has to.
    with ThreadPoolExecutor(2) as pool:
        for run in pool.map(simulated, range(2)):
            assert written(run) == here
    for own, process in processes:
        assert process.wait(timeout=300) == 0, own.name
        assert [(own / name).read_bytes() for name in OUTPUTS] == here[:2], own.name


def test_another_seed_is_another_run(folder: Path) -> None:
    here = written(simulated(0))
    config: dict[str, Any] = yaml.safe_load(Path("cluster.yaml").read_text())
    config["gateway"]["seed"] = 8
    Path("cluster.yaml").write_text(yaml.safe_dump(config))
    assert all(other != content for other, content in zip(written(simulated(0)), here, strict=True))


def test_many_threads_give_the_same_as_one(fidelity: str) -> None:
    requests = [(0.01 * i, 500 + 7 * i, 1 + i % 9, range(i % 5)) for i in range(200)]
    made = trace(requests, page=4)
    config = cluster(
        {"device_tokens": 4000, "count": 3, "chunk_tokens": 64}, page_size=4, fidelity=fidelity,
        gateway={"policy": "random", "seed": 3},
    )  # fmt: skip

    def state(_: int) -> list[bytes]:
        return [array.tobytes() for array in finish(made, config, fuzz_profile()).state]

    with ThreadPoolExecutor(4) as pool:
        assert all(other == state(0) for other in pool.map(state, range(8)))
