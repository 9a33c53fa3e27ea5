"""The one reader of YAML, in files and in attributes: plain values only, no key twice, and bounds on all of it.

Files come from anywhere. A kilobyte of aliases of aliases, or of merges (``<<``), can stand for gigabytes, and a tag
can name what no study needs: values are counted as aliases expand them, before anything is made of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from kvsweep.errors import InputError, shown

MAX_BYTES = 1 << 24
"""Longest text [byte]."""
MAX_VALUES = 300_000
"""Most values, keys among them, with aliases expanded."""
MAX_DEPTH = 100
"""Deepest nesting, with aliases expanded."""
_TAG = "tag:yaml.org,2002:"
_PLAIN = frozenset(_TAG + kind for kind in ("str", "int", "float", "bool", "null", "seq", "map", "merge"))
"""Tags of what is read; the others are dates, sets, binary data and objects."""

# The C parser is seven times faster; a PyYAML built without it still works.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_SafeLoader):  # type: ignore[misc]
    """A safe loader that refuses what is out of bounds, and a key given twice, of which the last would win."""

    def get_single_data(self) -> Any:
        """Return the value of the document; raises ConstructorError for one that is out of bounds."""
        node = self.get_single_node()
        if node is None:
            return None
        _expanded(node, 1, {})
        self.flat: set[int] = set()
        return self.construct_document(node)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put what `node` merges (``<<``) before its own keys, which win; of several merged mappings the first wins.

        Versions of PyYAML differ in this. Raises ConstructorError for the second of two equal keys of its own.
        """
        if id(node) in self.flat:
            return
        self.flat.add(id(node))
        _check_keys(node)
        own = [pair for pair in node.value if pair[0].tag != _TAG + "merge"]
        merged: list[tuple[yaml.Node, yaml.Node]] = []
        for key, value in reversed(node.value):
            if key.tag != _TAG + "merge":
                continue
            for each in reversed(value.value if isinstance(value, yaml.SequenceNode) else [value]):
                if not isinstance(each, yaml.MappingNode):
                    raise _refused(value, "<< merges what is no mapping; allowed: a mapping, or a list of mappings")
                self.flatten_mapping(each)
                merged += each.value
        node.value = merged + own


def _check_keys(node: yaml.MappingNode) -> None:
    seen: dict[object, int] = {}
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == _TAG + "merge":
            continue
        key = key_node.value
        if key in seen:
            raise _refused(key_node, f"key {shown(key)} given twice, first on line {seen[key]}; allowed: once")
        seen[key] = key_node.start_mark.line + 1


def _expanded(node: yaml.Node, depth: int, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return how many values `node` stands for, itself and every alias counted, and how many levels lie below it.

    `known` holds what was found of other nodes. Raises ConstructorError for what is too many, too deep or not plain.
    """
    if id(node) not in known:
        _check_plain(node)
        if depth > MAX_DEPTH:
            raise _refused(node, f"more than {MAX_DEPTH} levels; allowed: up to that")
        known[id(node)] = 0, 0  # until all in it is known
        size, below = 1, 0
        for part in _parts(node):
            more, deep = _expanded(part, depth + 1, known)
            size, below = size + more, max(below, deep + 1)
        known[id(node)] = size, below
    size, below = known[id(node)]
    if not size:
        raise _refused(node, "a value that holds itself; allowed: values that end")
    if size > MAX_VALUES or depth + below > MAX_DEPTH:
        raise _refused(node, f"more than {MAX_VALUES} values, or {MAX_DEPTH} levels of them; allowed: up to that")
    return size, below


def _check_plain(node: yaml.Node) -> None:
    if node.tag not in _PLAIN:
        kind = shown(node.tag.removeprefix(_TAG))
        raise _refused(node, f"{kind} is no plain value; allowed: text, numbers, true, false, null, lists, mappings")
    if isinstance(node, yaml.ScalarNode) and "\0" in node.value:
        raise _refused(node, "text with a null character; allowed: text without")


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _refused(node: yaml.Node, problem: str) -> Exception:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


# YAML 1.1 also reads 1:8:1 as a number to base 60 (4081) and 010 as eight, 2024-05-01 as a date. All stay the text they
# are, if they are no plain number.
_INT, _FLOAT, _DATE = (_TAG + kind for kind in ("int", "float", "timestamp"))
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_INT, _FLOAT, _DATE)]
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
    return read_yaml_mapping(read_bounded(path), str(path))


def read_bounded(path: Path) -> bytes:
    """Return what is in the file at `path`; raises InputError where it cannot be read, or is longer than allowed."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def read_yaml_mapping(data: bytes, label: str) -> dict[str, Any]:
    """Return the top-level mapping of a YAML file; an empty file is an empty mapping.

    `label` names the file in messages. Raises InputError with file and line for anything else.
    """
    content = read_yaml(data, label)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InputError(f"{label}: {shown(content)} is not a mapping; allowed: one block of fields under each key")
    for key in content:
        if not isinstance(key, str):
            raise InputError(f"{label}: key {shown(key)} is not text; put it in quotes")
    return content


def read_yaml(data: bytes, label: str) -> Any:
    """Return the value of a YAML text; raises InputError with `label` and line for what is none, or out of bounds."""
    if len(data) > MAX_BYTES:
        raise InputError(f"{label}: longer than allowed: {MAX_BYTES} bytes")
    # Each value but the first stands behind one of these: what has fewer of them than allowed values is read quickly.
    if sum(map(data.count, (b",", b":", b"\n", b"-", b"?", b"[", b"{"))) > MAX_VALUES:
        raise InputError(f"{label}: more than {MAX_VALUES} values; allowed: up to that")
    try:
        return yaml.load(data, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        syntax = "" if isinstance(error, yaml.constructor.ConstructorError) else "broken YAML: "
        raise InputError(f"{label}{line}: {syntax}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, LookupError, RecursionError) as error:  # a tag that its text does not fit, too
        raise InputError(f"{label}: not readable as YAML: {error}") from None
