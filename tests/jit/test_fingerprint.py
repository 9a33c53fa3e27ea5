"""Keys of compiled functions: whatever can change an answer changes the key, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from kvsweep.cluster.policies.plugins import GatewayContext
from kvsweep.jit import fingerprint as module
from kvsweep.jit.fingerprint import fingerprint
from kvsweep.jit.functions import score

# What a policy's file or a module it imports may hold; 1.5 and 2.5 are what the two versions differ by.
HEAD = "from enum import Enum, IntEnum\nfrom typing import NamedTuple\nimport math\nimport numba\nimport numpy as np\n"
REACHED = {
    "a number": ("C = 1.5\n", "C"),
    "an integer enumeration": ("class W(IntEnum):\n    A = int(2 * 1.5)\n", "W.A.value"),
    "an enumeration": ("class W(Enum):\n    A = (1.5, 0)\n", "W.A.value[0]"),
    "a constant of a class": ("class W:\n    A = 1.5\n", "W.A"),
    "of the class below": ("class B:\n    A = 1.5\nclass W(B):\n    pass\n", "W.A"),
    "of a class in a class": ("class W:\n    class In:\n        A = 1.5\n", "W.In.A"),
    "a static method": ("class W:\n    @staticmethod\n    def f():\n        return 1.5\n", "W.f()"),
    "a property": ("class W:\n    @property\n    def f(self):\n        return 1.5\n", "W().f"),
    "defaults of a named tuple": ("class W(NamedTuple):\n    a: float = 1.5\n", "W().a"),
    "a default": ("def g(x=1.5):\n    return x\n", "g()"),
    "a default by name": ("def g(*, x=1.5):\n    return x\n", "g()"),
    "a closure": ("def made(x):\n    return lambda: x\ng = made(1.5)\n", "g()"),
    "a float that hides": ("class F(float):\n    def __repr__(self):\n        return 'F'\nC = F(1.5)\n", "C"),
    "an array": ("C = np.array([1.5])\n", "C[0]"),
    "a mapping": ("C = {'a': [1.5]}\n", "C['a'][0]"),
    "a set": ("C = frozenset({'a', 1.5})\n", "C"),
    "an enumeration in a tuple": ("class W(IntEnum):\n    A = int(2 * 1.5)\nC = (W.A,)\n", "C[0]"),
    "a compiled helper": ("@numba.njit\ndef g():\n    return 1.5\n", "g()"),
    "options of a compiled helper": ("@numba.njit(fastmath=1.5 > 2)\ndef g():\n    return 1.0\n", "g()"),
    "what is caught": ("def g(x):\n    try:\n        return 1.0 / x\n    except (ValueError, OSError)[int(1.5) - 1]:\n"
                       "        return 0.0\n", "g(0.0)"),
}  # fmt: skip


def made(text: str, expression: str, name: str = "helper") -> Callable[..., Any]:
    """Return a function that reaches what `text` defines, by way of a module or among its own names."""
    helper, own = ModuleType(name), ModuleType("own")
    exec(HEAD + text, helper.__dict__)
    exec(f"def cost(ctx):\n    return ctx.draw * 0.0 + float({expression})\n", own.__dict__)
    vars(own).update({key: value for key, value in vars(helper).items() if not key.startswith("__")})
    function: Callable[..., Any] = own.cost
    return function


@pytest.mark.parametrize("what", REACHED)
def test_all_that_is_reached_is_in_the_key(what: str) -> None:
    text, expression = REACHED[what]
    first, again, other = (fingerprint(made(each, expression)) for each in (text, text, text.replace("1.5", "2.5")))
    assert first == again and first != other


def test_what_is_not_reached_is_not() -> None:
    text, expression = REACHED["a number"]
    assert fingerprint(made(text, expression)) == fingerprint(made(text + "OTHER = 3\n", expression))


def test_a_helper_may_have_the_name_of_a_module_of_python() -> None:
    text = "def g():\n    return 1.5\n"
    digests = set()
    for each in (text, text.replace("1.5", "2.5")):
        helper = ModuleType("profile")
        helper.__file__ = "/somewhere/profile.py"
        exec(each, helper.__dict__)
        sys.modules["profile"], before = helper, sys.modules.get("profile")
        module._is_of_library.cache_clear()
        try:
            own = ModuleType("own")
            own.g = helper.g  # type: ignore[attr-defined]
            exec("def cost(ctx):\n    return g()\n", own.__dict__)
            digests.add(fingerprint(own.cost))
        finally:
            module._is_of_library.cache_clear()
            if before is None:
                del sys.modules["profile"]
            else:
                sys.modules["profile"] = before
    assert len(digests) == 2


def test_what_cannot_be_followed_is_another_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    function = made("class O:\n    pass\nC = O()\n", "C")
    first = fingerprint(function)
    assert first == fingerprint(function)
    monkeypatch.setattr(module, "_PROCESS", "another")
    assert first != fingerprint(function)


def test_keys_of_what_is_built_in_are_those_of_other_processes() -> None:
    """Whatever the order of hashes: else nothing would be found in the cache."""
    code = (
        "from kvsweep.jit.policies import _key, kernels, timing\n"
        "from kvsweep.policies.registry import load_policies\n"
        "from kvsweep.cluster.simulation.cores import CORES, _audit, _compiled\n"
        "print([_key(p, t) for p in load_policies().values() for t in (kernels, timing)])\n"
        "print([each(name).key for name in CORES for each in (_compiled, _audit)])"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1 and len(set(found.pop().decode().split(","))) > 10


def test_an_edited_enumeration_changes_the_answer() -> None:
    """It stands in a module that the policy imports, whose name and place stay the same."""
    text, expression = REACHED["an integer enumeration"]
    fields = [0.0] * len(GatewayContext._fields)
    answers = [score(made(each, expression), GatewayContext, "it").ctypes(*fields)
               for each in (text, text.replace("1.5", "2.5"))]  # fmt: skip
    assert answers == [3.0, 5.0]
