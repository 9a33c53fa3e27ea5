"""Results as xarray Datasets: their names and units, their building, writing, opening and analysis."""
