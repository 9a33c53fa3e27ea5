"""Typed access to the fields of a ``config.json``; every message names the file and the field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvsweep.errors import InputError, shown, unknown_name

LARGEST_FILE = 10_000_000
"""Configs are kilobytes; more than this is some other file [byte]."""
MOST = 10_000_000_000
TEXT_PARTS = ("text_config", "language_config", "llm_config")
"""Where multimodal checkpoints keep the language model."""


class Config:
    """The fields of one config; text parts of multimodal ones are laid over the rest."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        """Take `values`, which messages call `where`."""
        self.where = where
        self.values = dict(values)
        for part in TEXT_PARTS:
            inner = values.get(part)
            if isinstance(inner, Mapping):
                self.values |= inner
        for field in ("quantization_config", "architectures"):  # stated beside the text part
            if values.get(field) is not None:
                self.values[field] = values[field]

    def has(self, *names: str) -> bool:
        """Return whether any of `names` is stated and not null."""
        return any(self.values.get(name) is not None for name in names)

    def count(self, *names: str, default: int | None = None, lowest: int = 1) -> int:
        """Return the whole number under the first of `names` that is stated; raises InputError without a default."""
        for name in names:
            value = self.values.get(name)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= MOST:
                    raise InputError(f"{self.where}: {name}: {shown(value)}; allowed: a whole number from {lowest} on")
                return value
        if default is None:
            raise InputError(f"{self.where}: {names[0]}: missing; a language model's config.json states it")
        return default

    def flag(self, name: str, default: bool = False) -> bool:
        """Return the truth under `name`."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(f"{self.where}: {name}: {shown(value)}; allowed: true, false")
        return value

    def text(self, name: str, default: str = "") -> str:
        """Return the text under `name`."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise InputError(f"{self.where}: {name}: {shown(value)}; allowed: text")
        return value

    def rows(self, name: str, length: int, allowed: Sequence[Any] | None = None) -> list[Any]:
        """Return the list under `name`, one item a layer; raises InputError for another length or item."""
        value = self.values.get(name)
        if not isinstance(value, list) or len(value) < length:
            raise InputError(f"{self.where}: {name}: {shown(value)}; allowed: a list of {length} items, one a layer")
        for item in value if allowed else ():
            if item not in (allowed or ()):
                raise unknown_name(f"{self.where}: {name}", item, [str(one) for one in allowed or ()])
        return value[:length]

    def part(self, name: str) -> Config | None:
        """Return the nested fields under `name`, None where there are none."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise InputError(f"{self.where}: {name}: {shown(value)}; allowed: a mapping of fields")
        return Config(value, f"{self.where}: {name}")


def read_config(path: Path, what: str) -> Config:
    """Return the config in the file `path`, or in the folder of a checkpoint; `what` names the option in messages."""
    file = path / "config.json" if path.is_dir() else path
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise InputError(f"{what}: {file} has more than {LARGEST_FILE} bytes; allowed: a model's config.json")
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{what}: {file}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{what}: {file} is no JSON; allowed: a model's config.json") from None
    if not isinstance(values, dict):
        raise InputError(f"{what}: {file} holds no mapping of fields; allowed: a model's config.json")
    return Config(values, f"{what}: {file}")
