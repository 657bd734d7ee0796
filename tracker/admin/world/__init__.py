"""The countries of the world: their names, and outlines for a map. README.md says where they come from."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "countries.json"


@dataclass(frozen=True, slots=True)
class World:
    """By ISO 3166-1 alpha-2 code, and XK for Kosovo. ``outlines`` are SVG paths in a view box of ``width`` by ``height``.

    Countries too small for an outline are in ``dots``: a point in the same units. Some have neither.
    """

    width: int
    height: int
    outlines: dict[str, str]
    dots: dict[str, tuple[int, int]]
    names: dict[str, str]


@cache
def world() -> World:
    """Read when it is first asked for."""
    return World(**json.loads(_FILE.read_text(encoding="utf-8")))


def country_name(code: str) -> str:
    """``GB`` -> ``United Kingdom``; a code that is none stays as it is."""
    return world().names.get(code, code)
