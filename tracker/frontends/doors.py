"""What all doors of a server share (door.py has one connection's)."""

from collections.abc import Callable

from tracker.bittorrent import Address
from tracker.frontends.connection import Server
from tracker.frontends.front import FrontEnd
from tracker.frontends.gate import Gate
from tracker.frontends.heads import Heads

_LONGEST = 8192
"""Bytes of a request that a door waits for, or answers."""

LogRequest = Callable[[str, int, float, Address], None]
"""(kind, status, seconds, client)"""


class Doors:
    """``log_request`` hears of every request answered there. When not ``ajar`` all connections are aiohttp's from the start."""

    def __init__(
        self, front: FrontEnd, server: Server, log_request: LogRequest | None = None, *, ajar: bool = True
    ) -> None:
        self.front = front
        self.tracker = front.tracker
        self.server = server
        self.crowd = server.crowd
        self.log_request = log_request
        self.ajar = ajar
        self.settings = front.rules.settings
        self.longest = min(_LONGEST, self.settings.max_request_line_bytes)  # aiohttp refuses what is longer
        self.heads = Heads(self.settings)
        self.gate: Gate | None = None
