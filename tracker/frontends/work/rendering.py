"""The templates of the claimants' listener: its page, and the RSS feed of torrents that need seeders. Everything is
escaped; an undefined name is an error."""

import math
import re
from functools import cache

import jinja2

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""


@cache
def environment() -> jinja2.Environment:
    """Cached, because templates are slow to compile."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("tracker.frontends.work", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(size=size_text, amount=amount_text, xml=xml_text)
    return made


def size_text(number: float) -> str:
    """Bytes in binary units; an item of 0 bytes too."""
    unit = min(len(_UNITS) - 1, int(math.log(number, 1024))) if number >= 1 else 0
    return f"{number / 1024**unit:,.{min(unit, 1)}f} {_UNITS[unit]}"


def days_text(seconds: float) -> str:
    return f"{seconds / 86_400:,.1f} d"


def amount_text(number: int, column: str) -> str:
    """A number of items, bytes or seconds."""
    if column == "items":
        return f"{number:,}"
    return size_text(number) if column == "bytes" else days_text(number)


def xml_text(text: str) -> str:
    """The text without characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)
