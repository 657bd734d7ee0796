"""The numbers of announces: one rule for HTTP and UDP.

HTTP writes them as decimals of any length, UDP has 64 or 32 bits for them. A negative number looks like a large one
over UDP, and over HTTP from clients that print it without its sign.
"""

from tracker.bittorrent import MAX_COUNT, Digits, Event
from tracker.refusals import Refusal

MAX_BYTES = 2**64
"""Larger byte counts are refused. 2^64 - 1 in double precision is 2^64."""
MAX_PEERS_WANTED = 2**31 - 1
"""A larger number is a negative one, by which clients ask for the tracker's default."""
MAX_PORT = 65535
_MAX_LEFT = 2**63
_STOPPED = Event.STOPPED


def byte_count(number: int) -> Digits:
    return Digits(b"%d" % min(number, MAX_COUNT))


def bytes_left(number: int) -> Digits | None:
    """None is unknown: clients send 2^64 - 1 while they have only a magnet link."""
    return byte_count(number) if number <= _MAX_LEFT else None


def check_unusual_port(port: int | None, event: Event) -> None:
    """Raises Refusal for 0, larger numbers than MAX_PORT and None, except for 0 of a peer that stops."""
    if port != 0 or event is not _STOPPED:
        raise Refusal("port must be from 1 to 65535")
