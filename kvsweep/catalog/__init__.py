"""Hardware and model catalogs as data: one YAML file a kind, each figure with its source."""

from kvsweep.catalog.load import Catalog, load

__all__ = ["Catalog", "load"]
