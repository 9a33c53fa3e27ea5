"""The profiles that come with kvsweep, by name: of a worker's steps, and of service models (``-service``)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from kvsweep.errors import unknown_name


def shipped() -> dict[str, Path]:
    """Return the profiles that come with kvsweep, by name."""
    folder = Path(str(resources.files("kvsweep.hardware"))) / "profiles"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


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
