"""Profiles of either kind: service models, and step profiles of vLLM workers; told by their content."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from kvsweep.cluster.inputs.config import ClusterConfig
from kvsweep.cluster.inputs.service_profile import Profile, parse_profile, profile_mapping
from kvsweep.cluster.inputs.step_profile import StepProfile, parse_step_profile, step_profile_mapping
from kvsweep.errors import InputError, unknown_name
from kvsweep.yamlfile import read_yaml_file

AnyProfile = Profile | StepProfile


def read_any_profile(given: str | Path) -> AnyProfile:
    """Return the profile in a file, or that of a name that comes with kvsweep; raises InputError as its reader does."""
    path = find_profile(given)
    return parse_any_profile(read_yaml_file(path), str(path))


def parse_any_profile(values: Mapping[str, Any], where: str) -> AnyProfile:
    """Return the profile stated by `values`, as in a file; `where` is what messages call it."""
    return parse_step_profile(values, where) if "format" in values else parse_profile(values, where)


def any_profile_mapping(profile: AnyProfile) -> dict[str, Any]:
    """Return `profile` as a file would state it."""
    return step_profile_mapping(profile) if isinstance(profile, StepProfile) else profile_mapping(profile)


def service_profile(config: ClusterConfig, profile: AnyProfile) -> Profile:
    """Return `profile`; raises InputError where it is none for the workers of `config`."""
    if isinstance(profile, StepProfile):
        raise InputError(
            f"profile {profile.name!r}: step times, and cluster {config.name!r} has no vllm workers; allowed: a "
            "profile of service models (kvsweep cluster init)"
        )
    return profile


def step_profile(config: ClusterConfig, profile: AnyProfile) -> StepProfile:
    """Return `profile`; raises InputError where it is none for the vLLM workers of `config`."""
    if isinstance(profile, Profile):
        raise InputError(
            f"profile {profile.name!r}: service models, and cluster {config.name!r} has vllm workers; allowed: a step "
            f"profile (kvsweep calibrate), or one of {', '.join(_step_names())}"
        )
    for group in config.vllm:
        if group.tp != profile.tp:
            raise InputError(f"vllm workers: tp: {group.tp}; allowed: {profile.tp}, as profile {profile.name!r} has")
    return profile


def shipped() -> dict[str, Path]:
    """Return the profiles that come with kvsweep, by name: of steps, and of service models (``-service``)."""
    folder = Path(str(resources.files("kvsweep.hardware"))) / "profiles"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def shipped_files() -> list[Path]:
    """Return the files of hardware, models and profiles that come with kvsweep."""
    return sorted(Path(str(resources.files("kvsweep.hardware"))).rglob("*.yaml"))


def _step_names() -> list[str]:
    return [name for name in shipped() if not name.endswith("-service")]


def step_profile_of(gpu: str, model: str, tp: int | None) -> tuple[Path, StepProfile]:
    """Return the shipped step profile of a model on a GPU, with its file: that of `tp` GPUs, None for the least.

    Raises InputError naming ``--gpu``, ``--model`` or ``--tp``, and what there is.
    """
    found = []
    for name in _step_names():
        if name.startswith(f"{gpu}-"):
            path = shipped()[name]
            found.append((path, parse_step_profile(read_yaml_file(path), str(path))))
    also = "; another GPU, model or number of GPUs: kvsweep calibrate makes its profile of measurements"
    if not found:
        raise InputError(f"--gpu: no step profile of {gpu} comes with kvsweep; those there are: "
                         f"{', '.join(_step_names())}{also}")  # fmt: skip
    of_model = [(path, profile) for path, profile in found if profile.model == model]
    if not of_model:
        models = ", ".join(dict.fromkeys(profile.model for _, profile in found))
        raise InputError(f"--model: no step profile of {model} on {gpu} comes with kvsweep; allowed: {models}{also}")
    of_model.sort(key=lambda each: each[1].tp)
    fitting = [each for each in of_model if tp in (None, each[1].tp)]
    if not fitting:
        sizes = ", ".join(str(profile.tp) for _, profile in of_model)
        raise InputError(f"--tp: no step profile of {model} on {tp} x {gpu} comes with kvsweep; allowed: {sizes}{also}")
    return fitting[0]


def find_profile(given: str | Path) -> Path:
    """Return the file of a profile: a path, or the name of one that comes with kvsweep; raises InputError for neither.

    What exists, has a suffix of YAML or lies in a folder is a path.
    """
    path = Path(given)
    if path.exists() or path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        return path
    names = shipped()
    if str(given) not in names:
        raise unknown_name("--profile", str(given), names)
    return names[str(given)]
