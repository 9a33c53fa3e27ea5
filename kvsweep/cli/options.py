"""Options that `simulate`, `sweep` and `overhead` share, made from the tables of the model's inputs.

Values reach the engine as the text the user typed; it reads axes and units, and knows what is allowed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kvsweep.catalog.load import ENVIRONMENT, load
from kvsweep.cli.output import FORMATS
from kvsweep.costs.deployment import DEFAULT_MODEL, DEFAULT_STACK
from kvsweep.costs.inputs import CHOICE_FIELDS, NUMBER_FIELDS, PART_FIELDS, PROMPT_TOKENS, Choice, Field
from kvsweep.errors import InputError, printable

F = TypeVar("F", bound=Callable[..., Any])

POLICY_FILES = "KVSWEEP_POLICY_FILE"
"""Environment variable with policy files, separated as in PATH."""

NUMBERS_HELP = "Numbers are in base units or carry a suffix: 64GB/s, 80GB, 312TFLOP/s, 500ms, 30/min, 50%."
AXES_HELP = "a,b,c or start:stop:step (stop included), start:stop:nN (N points), log:start:stop:nN"


class Bounded(click.FloatRange):
    """A number within bounds; click's own range takes NaN, which is beyond none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; fails for one out of range and for what is none."""
        number = super().convert(value, param, ctx)
        return number if number == number else self.fail(f"{value} is not a number.", param, ctx)


class Files(click.Path):
    """Paths, of which an environment variable may hold several, as PATH does; an empty entry is none."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """Return the paths in the value of an environment variable."""
        return [entry for entry in super().split_envvar_value(rv) if entry]


def dashed(name: str) -> str:
    """Return the option that sets the input `name`."""
    return f"--{name.removesuffix('s') if name == 'policy_files' else name}".replace("_", "-")


def model_options(defaults: Mapping[str, Any], numbers: Mapping[str, Field] = NUMBER_FIELDS) -> Callable[[F], F]:
    """Return the decorator that adds an option for every input of the model; `defaults` are those of the workload.

    `numbers` are the numeric inputs, all by default.
    """
    shown_defaults = {"stack": DEFAULT_STACK, **DEFAULT_MODEL, **defaults}

    def decorate(command: F) -> F:
        parts = [_part(name, kind, shown_defaults.get(name)) for name, kind in PART_FIELDS.items()]
        figures = [number_option(field, shown_defaults.get(field.name)) for field in numbers.values()]
        figures += [number_option(PROMPT_TOKENS, None)] if "total_blocks" in numbers else []
        choices = [_choice(choice) for choice in CHOICE_FIELDS.values()] if "total_blocks" in numbers else []
        for option in reversed([*parts, *figures, *choices, *_settings(shown_defaults["placement"])]):
            command = option(command)
        return command

    return decorate


def output_options(suffixes: Sequence[str], what: str) -> Callable[[F], F]:
    """Return the decorator that adds the options for where `what` goes; files are of one of `suffixes`."""

    def suffixed(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
        if path is not None and path.suffix not in suffixes:
            raise InputError(f"--output: {path} has no known suffix; allowed: {', '.join(suffixes)}")
        return path

    options = (
        click.option(
            "--output", "-o", type=click.Path(path_type=Path), metavar="FILE", callback=suffixed,
            help=f"Save {what} in FILE, whose suffix ({', '.join(suffixes)}) says how.",
        ),
        click.option("--force", is_flag=True, help="Overwrite FILE."),
        click.option(
            "--format", "output_format", type=click.Choice(FORMATS), show_default=FORMATS[0],
            help="Form of what is printed on stdout.",
        ),
        click.option("--quiet", "-q", is_flag=True, help="Print no notes and no progress on stderr."),
    )  # fmt: skip

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given; a repeatable one that was not is absent, too."""
    return {name: value for name, value in options.items() if value is not None and value != ()}


def say(line: str) -> None:
    """Print `line` on stderr, which keeps stdout for the result."""
    with contextlib.suppress(OSError):  # a full disk behind stderr is no reason to lose the result
        click.echo(printable(line), err=True)


def hardware_option(command: F) -> F:
    """Add the option for catalogs of one's own."""
    return click.option(
        "--hardware", type=click.Path(path_type=Path), multiple=True, metavar="DIR",
        help="Directory of catalog files laid over the built-in ones; repeatable, later ones win. "
        f"{ENVIRONMENT} may name more, which come first.",
    )(command)  # fmt: skip


def completing(names: Callable[[], Iterable[str]]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return what completes an option in the shell: those of `names`, asked for only then, that begin as it does."""
    return lambda ctx, param, incomplete: [name for name in names() if name.startswith(incomplete)]


def _settings(placement: str) -> Sequence[Callable[[F], F]]:
    """Return the options that are neither a catalog key nor a number."""
    return (
        click.option(
            "--placement", multiple=True, metavar="WHERE",
            show_default=f"{placement}, auto where GPU and model are real",
            help="Where the cached blocks live: disk, auto (fastest tier first), manual:V,D,K (shares of VRAM, DRAM, "
            "disk) or simplex:n (all shares in steps of 1/n); repeatable.",
        ),
        click.option("--policies", metavar="IDS", help="Only these policies, as in a,b; all by default."),
        click.option(
            "--policy-file", "policy_files", type=Files(), multiple=True, metavar="FILE", envvar=POLICY_FILES,
            show_envvar=True, help="Python file with a policy of your own; repeatable.",
        ),
        hardware_option,
    )  # fmt: skip


def _part(name: str, kind: str, default: Any) -> Callable[[F], F]:
    what = {"stack": "Preset of parts", "gpu": "GPU", "dram": "DRAM"}.get(name, name.capitalize())
    override = "" if name in ("stack", "model") else "; overrides the stack's"
    return click.option(
        dashed(name), name, metavar="KEY", shell_complete=completing(lambda: load().entries(kind)),
        show_default=_readable(default), help=f"{what}, a key of `kvsweep catalog {kind}`{override}.",
    )  # fmt: skip


def _choice(choice: Choice) -> Callable[[F], F]:
    """Return the option for a model by name."""
    return click.option(
        dashed(choice.name), choice.name, metavar="|".join(choice.values), show_default=choice.by_world,
        help=f"{choice.doc[0].upper()}{choice.doc[1:]}.",
    )  # fmt: skip


def number_option(field: Field, default: Any) -> Callable[[F], F]:
    """Return the option for one number, with its meaning and unit as help."""
    unit = "" if field.unit == "1" else f" [{field.unit}]"
    return click.option(
        dashed(field.name), field.name, metavar="NUMBER", show_default=_readable(default),
        help=f"{field.doc[0].upper()}{field.doc[1:]}{unit}.",
    )  # fmt: skip


def _readable(default: Any) -> str | bool:
    """Return a default as help shows it; False where there is none."""
    if default is None:
        return False
    return default if isinstance(default, str) else f"{default:g}"
