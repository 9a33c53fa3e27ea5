"""A sweep or reduction as a table of pandas: what varies, and nothing that is the same in every row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import xarray as xr

from kvsweep.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def to_dataframe(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row for each policy and point of the axes, which are its index, and a column for each variable.

    Raises
    ------
    InputError
        For variables on different dims, as those of cluster studies, whose product would repeat every figure.
    """
    import pandas as pd  # xarray brings it; half a second that no other use of a sweep waits for

    dims = {frozenset(variable.dims) for variable in ds.data_vars.values()}
    if len(dims) != 1:
        raise InputError("to_dataframe: the variables lie on different dims; take one, as in ds.kvsweep.figure('ttft')")
    (varying,) = dims
    frame: pd.DataFrame = ds.drop_vars(set(ds.coords) - varying).to_dataframe()
    if "decision_mode" in frame:
        modes = ds["decision_mode"].attrs["flag_meanings"].split()
        frame["decision_mode"] = pd.Categorical.from_codes(frame["decision_mode"].to_numpy(), modes)
    return frame
