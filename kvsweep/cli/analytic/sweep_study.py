"""Study files: a sweep's axes and settings as YAML, with options of the command line laid over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kvsweep.cli.options import dashed
from kvsweep.errors import InputError, unknown_name
from kvsweep.yamlfile import read_yaml_file

RUN_SETTINGS = ("reduce", "reduce_over", "threads")
"""Settings of a sweep that are no axes and choose how it runs."""

_PATHS = ("policy_files", "hardware")
_REPLACES = {
    "hit_ratio": "miss_blocks",
    "miss_blocks": "hit_ratio",
    "prompt_tokens": "total_blocks",
    "total_blocks": "prompt_tokens",
}


def setting_names() -> tuple[str, ...]:
    """Return the names a study file may set."""
    from kvsweep.grid.plan import DEPLOYMENT_AXES, INSTEAD, OPTIONS, WORKLOAD_AXES

    return (*DEPLOYMENT_AXES, *INSTEAD, *WORKLOAD_AXES, *OPTIONS, *RUN_SETTINGS)


def read_study(path: Path) -> dict[str, Any]:
    """Return the entries of a study file, which are named as the arguments of `kvsweep.sweep`.

    Files and folders in it are beside it, like those of a cluster study.
    Raises InputError with file and line or field for broken YAML, an unknown name and an entry without value.
    """
    entries = read_yaml_file(path)
    known = setting_names()
    for name, value in entries.items():
        if name not in known:
            raise unknown_name(str(path), name, known)
        if value is None:
            raise InputError(f"{path}: {name} has no value; allowed: a value, or leave the line out")
        if name in _PATHS:
            entries[name] = _beside(path, value)
    return entries


def _beside(study: Path, value: Any) -> Any:
    """Return the paths that `value` holds as seen from the folder of the study; what is no path is left alone."""
    if isinstance(value, list):
        return [_beside(study, item) for item in value]
    return study.parent / value if isinstance(value, str) else value


def foreign_code(study: Path, options: Mapping[str, Any], refuse: bool) -> list[Path]:
    """Return the Python files that a study, maybe somebody else's, has run; raises InputError to `refuse` any.

    Among the `options` those of the command line, a tuple, have taken the place of those of the study.
    """
    named = options.get("policy_files", ())
    files = [file for file in (named if isinstance(named, list) else [named]) if isinstance(file, Path)]
    if files and refuse:
        listed = ", ".join(map(str, files))
        raise InputError(f"{study}: policy_files: {listed}; allowed with --no-policy-files: a study that runs no code")
    return files if all(file.is_file() for file in files) else []  # or it is refused, and nothing runs


def merged(
    study: Path | None, given: Mapping[str, Any], weak: Collection[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return (options, how messages call each): the entries of `study` with the options `given` laid over them.

    A hit ratio on the command line takes the place of missing blocks in the file, and the other way round. Options
    named in `weak` yield to the file instead.
    """
    options = read_study(study) if study else {}
    given = {name: value for name, value in given.items() if name not in weak or name not in options}
    for name in given:
        options.pop(_REPLACES.get(name, name), None)
    spell = {name: dashed(name) for name in setting_names()}
    spell |= {name: f"{study}: {name}" for name in options if name not in given}
    return {**options, **given}, spell
