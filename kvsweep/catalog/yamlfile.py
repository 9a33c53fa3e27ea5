"""Strict reading of one YAML file: safe types only, no duplicate keys, broken syntax reported with its line."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from kvsweep.errors import InputError, shown

# The C parser is seven times faster; a PyYAML built without it still works.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_SafeLoader):  # type: ignore[misc]
    """A safe loader that refuses a key given twice; YAML itself would let the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping of `node`; raises ConstructorError at the second of two equal keys."""
        seen: dict[object, int] = {}
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            line = key_node.start_mark.line + 1
            if key in seen and key != "<<":
                problem = f"key {shown(key)} given twice, first on line {seen[key]}; allowed: once"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen[key] = line
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


# YAML 1.1 also reads 1:8:1 as a number to base 60 (4081) and 010 as eight. An axis must stay the text it is.
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_INT, _FLOAT)]
    for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver(_INT, re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"), list("-+0123456789"))
_StrictLoader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|[-+]?\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)


def read_yaml_file(path: Path) -> dict[str, Any]:
    """Return the mapping in the file at `path`; raises InputError where it cannot be read, or holds none."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    return read_yaml_mapping(data, str(path))


def read_yaml_mapping(data: bytes, label: str) -> dict[str, Any]:
    """Return the top-level mapping of a YAML file; an empty file is an empty mapping.

    `label` names the file in messages. Raises InputError with file and line for anything else.
    """
    try:
        content = yaml.load(data, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        syntax = "" if isinstance(error, yaml.constructor.ConstructorError) else "broken YAML: "
        raise InputError(f"{label}{line}: {syntax}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{label}: not readable as YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InputError(f"{label}: {shown(content)} is not a mapping; allowed: one block of fields under each key")
    for key in content:
        if not isinstance(key, str):
            raise InputError(f"{label}: key {shown(key)} is not text; put it in quotes")
    return content
