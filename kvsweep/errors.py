"""Errors a user can mend: one line that names the option, file, line or field and says what is allowed."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

# Nested aliases make a YAML file of a kilobyte a value of gigabytes: never print one in full.
_BRIEF = reprlib.Repr()
_BRIEF.maxlevel = 3
_BRIEF.maxlist = _BRIEF.maxtuple = _BRIEF.maxdict = _BRIEF.maxset = _BRIEF.maxfrozenset = _BRIEF.maxarray = 20
_BRIEF.maxstring = _BRIEF.maxlong = _BRIEF.maxother = 200


class InputError(ValueError):
    """Input that cannot be used; the message is one line fit for a terminal (CLI exit code 2)."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class PolicyError(InputError):
    """A policy that cannot be loaded, compiled or trusted; names the policy or its file."""


class ResultError(RuntimeError):
    """Work that was asked for correctly and could not be finished (CLI exit code 1)."""


def printable(text: str) -> str:
    """Return `text` as a terminal may show it: control characters and what is no text are written as escapes.

    Names and titles of files by somebody else may hold sequences that a terminal obeys.
    """
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def shown(value: object, limit: int = 80) -> str:
    """Return `value` as a message may print it: quoted, on one line, shortened to about `limit` characters."""
    try:
        text = repr(str(value)) if isinstance(value, str) else _BRIEF.repr(value)
    except ValueError:  # an integer of more digits than Python prints
        text = f"a {type(value).__name__} too long to print"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def unknown_name(what: str, given: object, allowed: Iterable[str]) -> InputError:
    """Return the error for a name that is not in `allowed`, with the nearest name suggested.

    `what` names the option or field, for example ``--gpu`` or ``stacks.yaml: h200: gpu``.
    """
    names = list(allowed)
    by_fold = {name.casefold(): name for name in reversed(names)}
    typed = str(given).casefold()
    begun = sorted((name for name in by_fold if typed and name.startswith(typed)), key=len)
    close = begun[:1] or _relatives(typed, by_fold) or get_close_matches(typed, list(by_fold), n=1, cutoff=0.5)
    listed = ", ".join(names[:30]) + (", …" if len(names) > 30 else "")
    hint = f"did you mean {by_fold[close[0]]!r}? " if close else ""
    return InputError(f"{what}: no {shown(given)}; {hint}choose from {listed}")


def _relatives(typed: str, names: Iterable[str]) -> list[str]:
    """Return the nearest of the `names` that begin with the same word as `typed`: glm-4.5 for zai-org/glm-4.8-fp8.

    Nearest is what has most words (letters, or a number) in common, then most letters.
    """
    wanted = _words(typed)
    if not wanted or len(wanted[0]) < 3 or not wanted[0].isalpha():
        return []
    family = [name for name in names if _words(name)[:1] == wanted[:1]]

    def nearness(name: str) -> tuple[int, float]:
        return len({*wanted} & {*_words(name)}), SequenceMatcher(None, typed.rpartition("/")[2], name).ratio()

    return sorted(family, key=nearness, reverse=True)[:1]


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z]+|[0-9]+(?:[.][0-9]+)?", name.rpartition("/")[2])
