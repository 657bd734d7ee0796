"""One file for each thing that is fuzzed; its ``check`` is handed bytes, and states what holds whatever they are.

``check`` returns, or raises for what must not be: AssertionError where an invariant breaks, or the very exception that should
not have come out. ``seeds`` gives what fuzzing begins with where there is no corpus yet, ``LONGEST`` the longest input tried.
"""

import importlib
import pkgutil
from collections.abc import Iterable
from typing import Protocol, cast


class Target(Protocol):
    LONGEST: int

    def check(self, data: bytes) -> None: ...

    def seeds(self) -> Iterable[bytes]: ...


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> Target:
    return cast(Target, importlib.import_module(f"{__name__}.{name}"))
