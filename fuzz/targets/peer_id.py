"""Client names: any peer id gives a short, printable text."""

from collections.abc import Iterable

from fuzz import vectors
from tracker.wire.http_request import parse_announce
from tracker.wire.peer_id import client_name, printable_prefix

MAX_LENGTH = 20


def check(data: bytes) -> None:
    peer_id = data[:20].ljust(20, b"\0")
    name = client_name(peer_id)
    assert 0 < len(name) <= 60 and name.isprintable() and name == name.strip(), name
    prefix = printable_prefix(peer_id)
    assert len(prefix) <= 8 and prefix.isascii() and prefix.isprintable() and " " not in prefix
    assert peer_id.startswith(prefix.encode())


def seeds() -> Iterable[bytes]:
    known = [
        b"-TR2940-",
        b"M7-10-1--",
        b"A2-1-36-0-",
        b"TIX0257-",
        b"-ML3.1.0",
        b"exbc\x01\x02",
        b"T03I-----",
        b"S58B-----",
    ]
    return [*known, *(parse_announce(query).peer_id for query in vectors.queries())]
