"""The names of unique-user metrics: how to escape, limit and unescape them.

A metric is ``countries.<country>.users``, ``countries.<country>.cities.<city>.users``,
``countries.<country>.postcodes.<postcode>.users``, ``torrents.<ih>.users``, or one of the first three below
``torrents.<ih>.``. A country is its English name, a city its English name alone. Each name is in NFC and escaped:
letters with their marks, digits and ``-`` stay; a space becomes ``_``; each UTF-8 byte of any other character becomes
``%`` and two upper-case hex digits. So no name contains ``.``, ``:``, ``/`` or ``~``, and different names stay
different. docs/uniques.md has the table.

Leaderboards name a city or postcode ``<country>/<city>``.
"""

import re
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple
from unicodedata import category, normalize

from tracker.store.schema.keys import SCOPES

MAX_COUNTRY_BYTES = 50
MAX_NAME_BYTES = 68
"""Max length of a city or postcode. The longest metric has 77 bytes besides country and city, which leaves 60 of
StatHat's 255 bytes for a prefix."""
_CUT = "%-"
"""Precedes the hash at the end of a cut name. Escaping never produces it, as hex digits follow each ``%``."""
_HASH_BYTES = 16
_ESCAPED = re.compile("(?:%[0-9A-F]{2})+")
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Invisible letters and marks. Names that differ only in them would look the same."""


class PlaceNames(NamedTuple):
    """A place as in metric names, in the order of SCOPES. Each part is escaped, and empty if unknown."""

    country: str = ""
    city: str = ""
    postcode: str = ""


NOWHERE = PlaceNames()


@lru_cache(maxsize=16_384)
def place_names(country: str, city: str, postcode: str) -> PlaceNames:
    """Converts the names from a GeoIP database, with ``country`` in English, to metric names. Empty means unknown.
    Without a country, city and postcode are left out, as different places share such names."""
    if not country:
        return NOWHERE
    return PlaceNames(
        bounded(escape(country), MAX_COUNTRY_BYTES),
        bounded(escape(city), MAX_NAME_BYTES),
        bounded(escape(postcode), MAX_NAME_BYTES),
    )


def bounded(name: str, max_bytes: int) -> str:
    """Limits an escaped name to ``max_bytes``. A cut name ends in a hash of the whole name."""
    raw = name.encode()
    if len(raw) <= max_bytes:
        return name
    room = max_bytes - len(_CUT) - 2 * _HASH_BYTES
    kept = re.sub("%[0-9A-F]?$", "", raw[:room].decode("utf-8", "ignore"))
    return f"{kept}{_CUT}{blake2b(raw, digest_size=_HASH_BYTES).hexdigest()}"


def escape(text: str) -> str:
    parts: list[str] = []
    after_letter = False
    for char in normalize("NFC", text):
        kind = category(char)
        # A mark combines with the character before it, which must be a letter and not an escape or a separator.
        stays = kind[0] == "L" or kind == "Nd" or (kind[0] == "M" and after_letter)
        after_letter = stays and not _UNSEEN.match(char)
        if after_letter or char == "-":
            parts.append(char)
        elif char == " ":
            parts.append("_")
        else:
            parts += (f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
    return "".join(parts)


def unescape(part: str) -> str:
    """Reverses ``escape``: returns the name in NFC. Raises ValueError for a cut name."""
    if _CUT in part:
        raise ValueError("a cut name cannot be unescaped")
    return _ESCAPED.sub(
        lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "surrogatepass"), part.replace("_", " ")
    )


def metric_of(scope: str, name: str) -> str:
    """Returns the metric of a leaderboard entry: a country, a torrent, or ``<country>/<city>``."""
    country, separator, place = name.partition("/")
    if separator and scope in SCOPES[1:]:
        return f"countries.{country}.{scope}.{place}.users"
    return f"{scope}.{name}.users"


def user_name(address: bytes, ipv6_prefix: int = 64) -> str:
    """Returns the user name of a packed address: the IPv4 address, or its IPv6 network, such as ``2001:db8::/64``."""
    if len(address) != 16:
        return str(ip_address(address))
    host_bits = 128 - ipv6_prefix
    network = IPv6Address(int.from_bytes(address, "big") >> host_bits << host_bits)
    return f"{network}/{ipv6_prefix}" if host_bits else str(network)
