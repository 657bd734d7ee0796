"""The names of the metrics of unique users: escaped, bounded, and read back.

A place is one word of a metric: ``GB``, ``GB/ENG/London`` (two Springfields differ), ``SG/Singapore`` where there is
no subdivision, ``GB/SW1A``. Each of its parts is in NFC and escaped: letters with their marks, digits and ``-`` stay, a
space is ``_``, everything else is ``%`` and two upper-case hex digits for each byte of its UTF-8. So no place holds a
``.``, ``:`` or ``~``, and different places have different names. docs/uniques.md has the table.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple
from unicodedata import category, normalize

from tracker.bittorrent import InfoHash

SCOPES = ("countries", "cities", "postcodes")
"""What a place may be."""
MAX_PLACE_BYTES = 128
"""Longest name of a place. The longest metric has 66 bytes besides, which leaves StatHat's 255 room for a prefix."""
_CUT = "%-"
"""Begins the hash that stands for what was cut off. Escaping never makes it: there two hex digits follow ``%``."""
_CUT_BYTES = MAX_PLACE_BYTES - len(_CUT) - 32
_ESCAPED = re.compile("(?:%[0-9A-F]{2})+")
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that show nothing: names that differ in them alone would look the same."""


class PlaceNames(NamedTuple):
    """A place as the metrics name it, each part empty where it is unknown."""

    country: str = ""
    city: str = ""
    postcode: str = ""


NOWHERE = PlaceNames()


@lru_cache(maxsize=16_384)
def place_names(country: str, subdivision: str, city: str, postcode: str) -> PlaceNames:
    """The names of a place from what a GeoIP database says of it; empty is unknown.

    A city or postcode without a country has no name: it would be the same for different places.
    """
    if not country:
        return NOWHERE
    above = (country, subdivision) if subdivision else (country,)
    return PlaceNames(
        _name(country), _name(*above, city) if city else "", _name(country, postcode) if postcode else ""
    )


def _name(*parts: str) -> str:
    name = "/".join(map(escape, parts))
    raw = name.encode()
    if len(raw) <= MAX_PLACE_BYTES:
        return name
    kept = re.sub("%[0-9A-F]?$", "", raw[:_CUT_BYTES].decode("utf-8", "ignore"))
    return f"{kept}{_CUT}{blake2b(raw, digest_size=16).hexdigest()}"


def escape(text: str) -> str:
    """One part of a place as it stands in a metric."""
    made: list[str] = []
    after_letter = False
    for char in normalize("NFC", text):
        kind = category(char)
        # A mark joins what stands before it, which must be a letter of the name and not our escape or separator.
        stays = kind[0] == "L" or kind == "Nd" or (kind[0] == "M" and after_letter)
        after_letter = stays and not _UNSEEN.match(char)
        if after_letter or char == "-":
            made.append(char)
        elif char == " ":
            made.append("_")
        else:
            made += (f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
    return "".join(made)


def unescape(part: str) -> str:
    """The NFC of what ``escape`` was given; raises ValueError for the end of a name that was cut."""
    if _CUT in part:
        raise ValueError("this name was cut: what it was is not in it")
    return _ESCAPED.sub(
        lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "surrogatepass"),
        part.replace("_", " "),
    )


def metrics(info_hash: InfoHash, place: PlaceNames) -> Iterator[str]:
    """The up to seven metrics that a sighting counts in. The scripts put them together in the same way."""
    torrent = f"torrents.{info_hash.hex()}"
    yield f"{torrent}.users"
    for scope, name in zip(SCOPES, place, strict=True):
        if name:
            yield f"{scope}.{name}.users"
            yield f"{torrent}.{scope}.{name}.users"


def user_name(address: bytes, ipv6_prefix: int = 64) -> str:
    """What a packed address counts as: itself, or its IPv6 network, such as ``2001:db8::/64``."""
    if len(address) != 16:
        return str(ip_address(address))
    spare = 128 - ipv6_prefix
    network = IPv6Address(int.from_bytes(address, "big") >> spare << spare)
    return f"{network}/{ipv6_prefix}" if spare else str(network)
