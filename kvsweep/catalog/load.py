"""The catalog: the built-in files of ``hardware/`` with the user's directories laid over them.

A directory holds any of the files below. An entry with a new key is added; under a known key the fields given
replace those below and the others stay (null removes a field). Figures changed without a word on their origin count
as the user's own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, overload

from kvsweep.catalog.configs.model import read_model
from kvsweep.catalog.rules import build_entry
from kvsweep.catalog.specs import USER_SOURCE, Disk, Dram, Entry, Gpu, Link, Model, Price, Sourced, Stack
from kvsweep.errors import InputError, shown, unknown_name
from kvsweep.yamlfile import read_bounded, read_yaml_mapping

ENVIRONMENT = "KVSWEEP_HARDWARE"
"""Environment variable with overlay directories, separated as in PATH."""

FILES: dict[str, tuple[str, type[Entry]]] = {
    "gpus": ("gpus.yaml", Gpu),
    "drams": ("dram.yaml", Dram),
    "disks": ("disks.yaml", Disk),
    "links": ("links.yaml", Link),
    "models": ("models.yaml", Model),
    "stacks": ("stacks.yaml", Stack),
    "prices": ("prices.yaml", Price),
}
"""File and record of each kind of entry; stacks refer to those before them."""
SOURCES_FILE = "sources.yaml"
PART_KINDS = {"gpu": "gpus", "dram": "drams", "disk": "disks", "link": "links"}
"""Fields of a stack and the kind of entry each refers to."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_NOT_FIGURES = ("name", "note", "source", "kind")


@dataclasses.dataclass(frozen=True, slots=True)
class Catalog:
    """All entries by key, read-only and in file order; `sha256` identifies the content, wherever it was read from."""

    gpus: Mapping[str, Gpu]
    drams: Mapping[str, Dram]
    disks: Mapping[str, Disk]
    links: Mapping[str, Link]
    models: Mapping[str, Model]
    stacks: Mapping[str, Stack]
    prices: Mapping[str, Price]
    sources: Mapping[str, str]
    sha256: str

    def entries(self, kind: str) -> Mapping[str, Entry]:
        """Return the entries of `kind`, a key of `FILES`."""
        if kind not in FILES:
            raise unknown_name("catalog kind", kind, FILES)
        entries: Mapping[str, Entry] = getattr(self, kind)
        return entries

    @overload
    def part(self, kind: Literal["gpus"], key: str, what: str) -> Gpu: ...
    @overload
    def part(self, kind: Literal["drams"], key: str, what: str) -> Dram: ...
    @overload
    def part(self, kind: Literal["disks"], key: str, what: str) -> Disk: ...
    @overload
    def part(self, kind: Literal["links"], key: str, what: str) -> Link: ...
    @overload
    def part(self, kind: Literal["models"], key: str, what: str) -> Model: ...
    @overload
    def part(self, kind: Literal["stacks"], key: str, what: str) -> Stack: ...
    @overload
    def part(self, kind: Literal["prices"], key: str, what: str) -> Price: ...
    @overload
    def part(self, kind: str, key: str, what: str) -> Entry: ...

    def part(self, kind: str, key: str, what: str) -> Entry:
        """Return the entry `key` of `kind`; raises InputError naming `what` (``--gpu``) and the nearest key.

        A model may be given as the path of its ``config.json`` instead, or of the folder that holds it.
        """
        entries = self.entries(kind)
        if key in entries:
            return entries[key]
        if kind == "models" and (key.endswith(".json") or os.sep in key and Path(key).exists()):
            return read_model(Path(key), what)
        raise unknown_name(what, key, entries)


def load(overlays: Sequence[Path] = (), what: str = "hardware directory") -> Catalog:
    """Return the catalog with the directories of KVSWEEP_HARDWARE and then `overlays` laid over it; later ones win.

    `what` is what messages call `overlays`. Overlay files are read anew on every call. Raises InputError with file,
    entry, field and what is allowed.
    """
    named = [Path(name) for name in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if name]
    directories = [(path, ENVIRONMENT) for path in named] + [(Path(path), what) for path in overlays]
    if not directories:
        return _builtin().catalog()
    layers = _builtin().copy()
    for directory, origin in directories:
        layers.add(_directory_files(directory, origin), f"{directory}{os.sep}")
    return layers.catalog()


@cache
def _builtin() -> _Layers:
    layers = _Layers()
    folder = resources.files("kvsweep.hardware")
    names = [file for file, _ in FILES.values()] + [SOURCES_FILE]
    layers.add({name: folder.joinpath(name).read_bytes() for name in names}, "")
    return layers


def _directory_files(directory: Path, what: str) -> dict[str, bytes]:
    """Return the catalog files of an overlay directory; raises InputError for none, or one with an unknown name."""
    if not directory.is_dir():
        raise InputError(f"{what}: {shown(str(directory))} is not a directory")
    known = [file for file, _ in FILES.values()] + [SOURCES_FILE]
    try:
        paths = [path for path in sorted(directory.iterdir()) if path.suffix in (".yaml", ".yml")]
        found = {path.name: read_bounded(path) for path in paths if not path.name.startswith(".")}
    except OSError as error:
        raise InputError(f"{what}: {error.filename}: {error.strerror}") from None
    for name in found:
        if name not in known:
            raise unknown_name(f"{what}: {directory}", name, known)
    if not found:
        raise InputError(f"{what}: {shown(str(directory))} has no catalog file; allowed: any of {', '.join(known)}")
    return found


@dataclasses.dataclass
class _Layers:
    """What the files laid on so far state (`stated`) and mean (`entries`), by kind and key."""

    stated: dict[str, dict[str, Any]] = dataclasses.field(default_factory=lambda: {k: {} for k in FILES})
    entries: dict[str, dict[str, Entry]] = dataclasses.field(default_factory=lambda: {k: {} for k in FILES})
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    finished: Catalog | None = None

    def copy(self) -> _Layers:
        """Return layers that can grow without changing these."""
        stated = {kind: dict(entries) for kind, entries in self.stated.items()}
        entries = {kind: dict(entries) for kind, entries in self.entries.items()}
        return _Layers(stated, entries, dict(self.sources))

    def add(self, files: Mapping[str, bytes], prefix: str) -> None:
        """Lay `files` (name to content) on top; `prefix` goes before file names in messages.

        Every layer must be valid on its own over those below, so that a message names the file that is to blame.
        """
        if SOURCES_FILE in files:
            label = f"{prefix}{SOURCES_FILE}"
            for key, text in read_yaml_mapping(files[SOURCES_FILE], label).items():
                if not isinstance(text, str):
                    raise InputError(f"{label}: {key}: {shown(text)} is not text; put it in quotes")
                self.sources[key] = text
        for kind, (file, cls) in FILES.items():
            if file not in files:
                continue
            label = f"{prefix}{file}"
            for key, values in read_yaml_mapping(files[file], label).items():
                self._add_entry(kind, cls, key, values, label)

    def _add_entry(self, kind: str, cls: type[Entry], key: str, values: object, label: str) -> None:
        where = f"{label}: {key}"
        if not _KEY.fullmatch(key):
            raise InputError(f"{where}: key; allowed: letters, digits and . _ + - after a letter or digit")
        if isinstance(values, Mapping) and key in self.stated[kind]:
            values = _amended(self.stated[kind][key], values)
        entry = build_entry(cls, key, values, where)
        for source, at in _sources_of(entry, where):
            if source not in self.sources:
                raise unknown_name(f"{at}: source", source, self.sources)
        if isinstance(entry, Stack):
            for field, part_kind in PART_KINDS.items():
                if getattr(entry, field) not in self.entries[part_kind]:
                    raise unknown_name(f"{where}: {field}", getattr(entry, field), self.entries[part_kind])
        self.stated[kind][key] = values
        self.entries[kind][key] = entry

    def catalog(self) -> Catalog:
        """Return the catalog of these layers."""
        if self.finished is None:
            views: dict[str, Any] = {kind: MappingProxyType(entries) for kind, entries in self.entries.items()}
            digest = _sha256(self.entries, self.sources)
            self.finished = Catalog(**views, sources=MappingProxyType(self.sources), sha256=digest)
        return self.finished


def _amended(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `above` over those of `below`, group by group.

    Figures changed without a `source` are the user's and `assumed`, whatever they were before.
    """
    merged = dict(below)
    if any(name not in _NOT_FIGURES and not isinstance(value, Mapping) for name, value in above.items()):
        merged.update(source=USER_SOURCE, kind="assumed")
    for name, value in above.items():
        both_groups = isinstance(value, Mapping) and isinstance(below.get(name), Mapping)
        merged[name] = _amended(below[name], value) if both_groups else value
    return merged


def _sources_of(entry: Entry, where: str) -> Iterator[tuple[str, str]]:
    """Yield every source key of an entry with the place it stands, groups first: the entry's own may come from one."""
    for field in dataclasses.fields(entry):
        group = getattr(entry, field.name)
        if isinstance(group, Sourced):
            yield group.source, f"{where}: {field.name}"
    yield entry.source, where


def _sha256(entries: Mapping[str, Mapping[str, Entry]], sources: Mapping[str, str]) -> str:
    content: dict[str, Any] = {
        kind: {key: dataclasses.asdict(entry) for key, entry in parts.items()} for kind, parts in entries.items()
    }
    text = json.dumps(content | {"sources": dict(sources)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
