"""Hardware and model catalogs as data: one YAML file a kind, each figure with its source."""
