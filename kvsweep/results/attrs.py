"""Attributes of a Dataset as NetCDF can hold them: mappings and lists travel as YAML text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr


def mapping_attr(dataset: xr.Dataset, name: str) -> dict[str, Any]:
    """Return an attribute that `to_attrs` wrote as YAML; empty where it is absent or somebody else's text."""
    import yaml

    text = str(dataset.attrs.get(name, ""))
    try:
        # A few aliases of aliases stand for gigabytes; a study needs none.
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text, Loader=yaml.SafeLoader)):
            return {}
        mapping = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return mapping if isinstance(mapping, dict) else {}


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
