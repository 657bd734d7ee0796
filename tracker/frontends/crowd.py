"""Who is connected to a port: how many, from where, and until when something has to come of it.

A connection costs a descriptor and some kilobytes, and anybody may open thousands and say nothing. So one address gets so
many at a time, a head has to arrive whole within some seconds, and where there are as many connections as there may be, the
one that has been open longest with nothing to answer makes room for whoever comes: a client that asks at once and goes is
served however many others sit there. What a trusted proxy opens counts as nobody's, and stays.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

import structlog

from tracker.bittorrent import Address
from tracker.descriptors import room
from tracker.settings import HttpSettings

TOO_MANY = "too many connections"
"""What a connection is counted as that is closed unasked, because of its address or because no other can be."""
_PLACE = 8
"""Bytes of an address that say whose it is: all of IPv4, the /64 of IPv6."""
_HEAD_SWEEPS = 4
"""How often overdue connections are looked for within the time that a head may take."""
_CLOSED_TOGETHER, _BREATH_SECONDS = 128, 0.005
"""Closing thousands in one go would keep everybody else waiting."""
_FRESH_SECONDS = 1.0
"""How long a client that has connected may take to ask, when the server is about to go."""
_LOOKED_AT = 32
"""Connections, the oldest first, of which one is to make room."""

log = structlog.get_logger()


class Guest(Protocol):
    """One connection, door's or aiohttp's."""

    until: int
    """The sweep after which it is overdue."""

    @property
    def fresh(self) -> bool:
        """It has not asked anything yet, and is about to."""

    @property
    def idle(self) -> bool:
        """Nothing is being answered that it would read: closing it loses nothing."""

    def wind_up(self) -> None:
        """Answer what was asked and close; at once when nothing was."""

    def cut_off(self) -> None: ...


class Crowd:
    """All connections of one server, in the order they came. ``refused`` hears of those that are not let in."""

    def __init__(self, http: HttpSettings, refused: Callable[[str], None]) -> None:
        self._refused = refused
        self._most = min(http.max_connections, room())
        self._most_of_one = http.max_connections_per_address
        self._guests: dict[Guest, bytes | None] = {}
        self._places: dict[bytes, int] = {}
        self._every_seconds = min(http.header_seconds, http.keepalive_seconds) / _HEAD_SWEEPS
        self.head_sweeps = _HEAD_SWEEPS
        self.idle_sweeps = round(http.keepalive_seconds / self._every_seconds)
        self.now = 0
        """Sweeps so far."""
        self._overdue: deque[Guest] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._guests)

    @property
    def closing(self) -> bool:
        return self._empty is not None

    def enter(self, guest: Guest, address: Address, *, trusted: bool) -> bool:
        """Lets a connection in from ``address``, empty on a unix socket; False where there are too many."""
        place = None if trusted or not address else address[:_PLACE]
        too_many = place is not None and self._places.get(place, 0) >= self._most_of_one
        if too_many or (len(self._guests) >= self._most and not self._make_room()):
            self._refused(TOO_MANY)
            return False
        if place is not None:
            self._places[place] = self._places.get(place, 0) + 1
        self._guests[guest] = place
        return True

    def leave(self, guest: Guest) -> None:
        place = self._guests.pop(guest, None)
        if place is not None:
            left = self._places[place] - 1
            if left:
                self._places[place] = left
            else:
                del self._places[place]
        if self._empty is not None and not self._guests:
            self._empty.set()

    def replace(self, guest: Guest, by: Guest) -> None:
        """The same connection is somebody else's to look after."""
        if guest in self._guests:
            self._guests[by] = self._guests.pop(guest)

    def _make_room(self) -> bool:
        """Closes one of those that came first. Who may not be closed is asked last the next time."""
        for guest in list(islice(self._guests, _LOOKED_AT)):
            place = self._guests[guest]
            if place is not None and guest.idle:
                self.leave(guest)
                guest.cut_off()
                return True
            del self._guests[guest]
            self._guests[guest] = place
        return False

    def sweep(self) -> None:
        """Closes who is overdue; and again in a while, until stopped. One timer for all: an own one for each would cost
        as much as reading its request."""
        if not self._overdue:
            self.now += 1
            now = self.now
            self._overdue.extend(guest for guest in self._guests if guest.until < now)
        for _ in range(min(len(self._overdue), _CLOSED_TOGETHER)):
            guest = self._overdue.popleft()
            if guest.until < self.now and guest.idle:
                guest.cut_off()
        seconds = _BREATH_SECONDS if self._overdue else self._every_seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self.sweep)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def drain(self, seconds: float) -> None:
        """Close idle connections and answer what is in flight, for at most ``seconds``."""
        self._empty = asyncio.Event()
        for guest in [guest for guest in self._guests if not guest.fresh]:
            guest.wind_up()
        await self._emptied(self._empty, _FRESH_SECONDS)
        for guest in list(self._guests):
            guest.wind_up()
        await self._emptied(self._empty, seconds - _FRESH_SECONDS)
        if self._guests:
            log.warning("cut off connections that did not finish", connections=len(self._guests))

    async def _emptied(self, empty: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if self._guests:
                    await empty.wait()

    def cut_off(self) -> None:
        """Close what is left."""
        for guest in list(self._guests):
            guest.cut_off()
