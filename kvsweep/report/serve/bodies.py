"""What a request body may hold, made from the tables of the model's inputs, and what is wrong with one that does not.

The models check names and types only. Ranges, units, catalog keys and axis texts are checked where the command line
has them checked, so that both say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, create_model

from kvsweep.costs.inputs import NUMBER_FIELDS, PART_FIELDS
from kvsweep.errors import InputError, unknown_name
from kvsweep.grid.axes import FORMS, PLACEMENTS
from kvsweep.report.serve.limits import MAX_BODY

Text = Annotated[StrictStr, Field(max_length=MAX_BODY)]
Number = StrictInt | StrictFloat | Text

_SEVERAL = ("total_blocks", "miss_blocks", "hit_ratio")
"""Inputs of a simulation that may have several points."""

_CHOICES = {
    **{name: f"keys of {kind} in GET /api/catalog" for name, kind in PART_FIELDS.items()},
    "placement": PLACEMENTS,
    "policies": "policy ids in GET /api/catalog",
}


def _model(title: str, several: Iterable[str], doc: str) -> type[BaseModel]:
    """Return the model of a body; inputs in `several` may be lists and axis texts."""
    fields: dict[str, Any] = {}
    for name in (*_CHOICES, *NUMBER_FIELDS):
        one: Any = Number if name in NUMBER_FIELDS else Text
        many = name in several or name == "policies"
        fields[name] = ((one | list[one] if many else one) | None, Field(None, description=allowed(name, many)))
    return create_model(title, __config__=ConfigDict(extra="forbid"), __doc__=doc, **fields)


def allowed(name: str, several: bool = True) -> str:
    """Return what the input `name` may be, in words."""
    if name in _CHOICES:
        text = _CHOICES[name]
    else:
        field = NUMBER_FIELDS[name]
        text = f"{field.doc}: {field.allowed}, or text with a unit suffix"
    return f"{text}; as a list or as an axis text {FORMS}" if several and name not in _CHOICES else text


if TYPE_CHECKING:
    SimulateBody = BaseModel
    SweepBody = BaseModel
else:
    SimulateBody = _model("Simulation", _SEVERAL, "Inputs of kvsweep.simulate; what is left out has its default.")
    SweepBody = _model(
        "Sweep", (*_CHOICES, *NUMBER_FIELDS), "Axes and settings of kvsweep.sweep; what is left out has its default."
    )

Details = list[dict[str, Any]]


def details_of_input(error: InputError) -> Details:
    """Return the fields an InputError names before its first colon, each with the message."""
    named, _, message = str(error).partition(": ")
    names = named.split(", ")
    if not all(name in SimulateBody.model_fields for name in names):
        return [_detail([], str(error))]
    return [_detail([name], message) for name in names]


def details_of_types(errors: Sequence[Mapping[str, Any]]) -> Details:
    """Return one entry a field for what pydantic found, which has one for each type it tried."""
    found: dict[str, dict[str, Any]] = {}
    for error in errors:
        place = [part for part in error["loc"][1:] if isinstance(part, str)][:1]
        if error["type"] == "json_invalid":
            found[""] = _detail([], f"the body is not JSON: {error.get('ctx', {}).get('error', 'broken')}")
        elif not place:
            found[""] = _detail([], "the body is not an object; allowed: an object of the fields in /openapi.json")
        elif error["type"] == "extra_forbidden":
            problem = unknown_name("field", place[0], SimulateBody.model_fields)
            found[place[0]] = _detail(place, str(problem).partition(": ")[2])
        else:
            found[place[0]] = _detail(place, f"this type cannot be used; allowed: {allowed(place[0])}")
    return list(found.values())


def _detail(place: list[str], message: str) -> dict[str, Any]:
    return {"loc": ["body", *place], "msg": message, "type": "value_error"}
