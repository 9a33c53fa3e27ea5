"""Attributes of a Dataset as NetCDF can hold them: mappings and lists travel as YAML text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvsweep.errors import InputError
from kvsweep.yamlfile import read_yaml

if TYPE_CHECKING:
    import xarray as xr


def mapping_attr(dataset: xr.Dataset, name: str) -> dict[str, Any]:
    """Return an attribute that `to_attrs` wrote as YAML; empty where it is absent or somebody else's text."""
    found = _attr(dataset, name)
    return found if isinstance(found, dict) else {}


def list_attr(dataset: xr.Dataset, name: str) -> list[Any]:
    """Return a list as `mapping_attr` does a mapping."""
    found = _attr(dataset, name)
    return found if isinstance(found, list) else []


def _attr(dataset: xr.Dataset, name: str) -> Any:
    try:
        return read_yaml(str(dataset.attrs.get(name, "")).encode(errors="surrogatepass"), name)
    except InputError:
        return None


def to_attrs(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` as NetCDF attributes: truth as 0/1, None left out, anything nested as YAML text."""
    import yaml

    # The C emitter writes the same text in a tenth of the time; a PyYAML built without it still works.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    attrs: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, bool):
            attrs[name] = int(value)
        elif isinstance(value, Mapping | list | tuple):
            attrs[name] = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=100)
        elif value is not None:
            attrs[name] = value
    return attrs
