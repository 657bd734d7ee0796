"""The names of the counters of accepted announces (docs/counters.md), by protocol."""

from collections.abc import Mapping, Sequence

from tracker.bittorrent import Event

Kind = tuple[Event, int, bool]
"""(event, length of the address, whether the peer joined)"""
Names = Mapping[Kind, tuple[str, ...]]

_FAMILIES = {4: "v4", 16: "v6"}
"""By the length of an address."""
_COUNTED_EVENTS = (Event.STARTED, Event.COMPLETED, Event.STOPPED)


def _of_announce(event: Event, family: str, protocol: str, *, joined: bool) -> tuple[str, ...]:
    names = ["requests", "announces", f"announces.{family}"]
    names += [f"announces.{protocol}", f"announces.{protocol}.{family}"] if protocol else []
    names += [f"announces.{event}"] if event in _COUNTED_EVENTS else []
    names += ["joins", f"joins.{family}"] if joined else []
    return (*names, f"joins.{protocol}.{family}") if joined and protocol else tuple(names)


def _of_announces(protocol: str) -> Names:
    return {
        (event, size, joined): _of_announce(event, family, protocol, joined=joined)
        for event in Event
        for size, family in _FAMILIES.items()
        for joined in (False, True)
    }


HTTP, UDP, WEBSOCKET = _of_announces(""), _of_announces("udp"), _of_announces("ws")

HTTP_BYTES: Sequence[tuple[str, ...]] = tuple(
    (f"bytes.{way}", f"bytes.{way}.{family}") for family in _FAMILIES.values() for way in ("up", "down")
)
"""In the order of TrafficTotals."""
UDP_AND_WEBSOCKET_BYTES: Sequence[tuple[str, ...]] = tuple(
    (f"bytes.{way}", f"bytes.{way}.{family}", f"bytes.{way}.{protocol}.{family}")
    for protocol in ("udp", "ws")
    for family in _FAMILIES.values()
    for way in ("up", "down")
)
