"""The check of a server's clock."""

from collections.abc import Callable

from redis.exceptions import ResponseError

from tracker.doctor.finding import Finding
from tracker.store.client.connection import Connection

CLOCK_SECONDS = 2.0
"""Maximum difference between the clocks of tracker and store: due lists and heartbeats compare them."""


async def check_clock(connection: Connection, clock: Callable[[], float]) -> Finding:
    before = clock()
    try:
        seconds = await _server_time(connection)
    except ResponseError:
        text = "TIME is forbidden, so the clock difference is unknown"
        return Finding("warning", "clock", text, "allow it: ACL SETUSER … +time")
    difference = seconds - (before + clock()) / 2
    if abs(difference) < CLOCK_SECONDS:
        return Finding("ok", "clock", f"the store's and this machine's differ by {abs(difference):.3f} s")
    way = "ahead of" if difference > 0 else "behind"
    text = f"the store's is {abs(difference):.1f} s {way} this machine's"
    return Finding("wrong", "clock", text, "run a time service (NTP) on both")


async def _server_time(connection: Connection) -> float:
    seconds, microseconds = await connection.command("TIME")
    return int(seconds) + int(microseconds) / 1e6
