"""Study files: a sweep's axes and settings as YAML, with options of the command line laid over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kvsweep.catalog.yamlfile import read_yaml_mapping
from kvsweep.cli.options import dashed
from kvsweep.errors import InputError, unknown_name

RUN_SETTINGS = ("reduce", "reduce_over", "threads")
"""Settings of a sweep that are no axes and choose how it runs."""

_REPLACES = {"hit_ratio": "miss_blocks", "miss_blocks": "hit_ratio"}


def setting_names() -> tuple[str, ...]:
    """Return the names a study file may set."""
    from kvsweep.grid.plan import DEPLOYMENT_AXES, OPTIONS, WORKLOAD_AXES

    return (*DEPLOYMENT_AXES, *WORKLOAD_AXES, *OPTIONS, *RUN_SETTINGS)


def read_study(path: Path) -> dict[str, Any]:
    """Return the entries of a study file, which are named as the arguments of `kvsweep.sweep`.

    Raises InputError with file and line or field for broken YAML, an unknown name and an entry without value.
    """
    try:
        entries = read_yaml_mapping(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    known = setting_names()
    for name, value in entries.items():
        if name not in known:
            raise unknown_name(str(path), name, known)
        if value is None:
            raise InputError(f"{path}: {name} has no value; allowed: a value, or leave the line out")
    return entries


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
