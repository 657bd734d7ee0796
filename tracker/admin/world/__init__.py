"""Country outlines for the world map. README.md names the sources."""

import json
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tracker.geoip import COUNTRY_NAMES

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class World:
    """Countries by ISO 3166-1 alpha-2 code, and XK for Kosovo. ``outlines`` are SVG paths in a view box of ``width`` by
    ``height``. Countries too small for an outline are in ``dots``, as points in the same units. Some have neither."""

    width: int
    height: int
    outlines: dict[str, str]
    dots: dict[str, tuple[int, int]]


@cache
def world() -> World:
    """Read at the first call."""
    return World(**json.loads((_FOLDER / "countries.json").read_text("utf-8")))


def country_name(code: str) -> str:
    """``GB`` -> ``United Kingdom``; an unknown code is returned unchanged."""
    return COUNTRY_NAMES.get(code, code)


def country_code(name: str) -> str:
    """The code of a country by any of its English names; empty for an unknown name."""
    return _country_codes().get(_plain_name(name), "")


@cache
def _country_codes() -> dict[str, str]:
    aliases: dict[str, list[str]] = json.loads((_FOLDER / "country_aliases.json").read_text("utf-8"))
    found = {_plain_name(name): code for code, names in aliases.items() for name in names}
    return found | {_plain_name(name): code for code, name in COUNTRY_NAMES.items()}


def _plain_name(name: str) -> str:
    """Removes accents, punctuation, capitals, "the" and "and"."""
    decomposed = unicodedata.normalize("NFKD", name.casefold())
    letters = "".join(char if char.isalpha() else " " for char in decomposed if not unicodedata.combining(char))
    words = {"saint": "st", "the": "", "and": ""}
    return " ".join(filter(None, (words.get(word, word) for word in letters.split())))
