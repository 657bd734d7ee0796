"""The fuzz targets, one file each.

``check`` takes any bytes. It raises AssertionError where an invariant breaks, or the exception that should not have
been raised. ``seeds`` are the first inputs while there is no corpus. ``MAX_LENGTH`` is the maximum length of an input.
"""

import importlib
import pkgutil
from collections.abc import Iterable
from typing import Protocol, cast


class Target(Protocol):
    MAX_LENGTH: int

    def check(self, data: bytes) -> None: ...

    def seeds(self) -> Iterable[bytes]: ...


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> Target:
    return cast(Target, importlib.import_module(f"{__name__}.{name}"))
