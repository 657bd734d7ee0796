"""WebSockets of one process: memory, CPU time of an announce with 5 offers and of a relayed offer. And of two processes
on one store, whose peers announce at their interval and answer each offer: CPU time, and how long an offer and an
answer take from one process to the other.

CPU time counts, so the machine need not be idle, but for the times of relays. The exit status is 1 where a goal is
missed.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from loadtest.bench.percentiles import in_milliseconds
from loadtest.bench.processes import cpu_by_part, resident_by_part, store, tracker
from loadtest.bench.sections import Section, as_markdown

OFFERS, SDP_BYTES = 5, 700
MEMORY_GOAL_KB, ANNOUNCE_GOAL, STORE_GOAL, RELAY_GOAL = 25.0, 250.0, 40.0, 40.0
"""Of a connection; microseconds of an announce in the process and in the store, and of a relayed offer."""
CORE_GOAL, LATENCY_GOAL = 6.0, 20.0
"""Per cent of a core for two processes whose peers announce at their interval; ms that 99 % of relays do not exceed."""
_TOGETHER = 50
"""Announces under way."""
_SETTINGS = {"TRACKER_HTTP__MAX_CONNECTIONS": "100000"}


class Browser:
    """Its sessions' descriptions begin with the process, ``side``, and when they were sent. With ``late`` it answers
    every offer, and notes there how long offers and answers from the other process took."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, number: int) -> None:
        self._socket, self.number, self._side = socket, number, number % 2
        self._ids: dict[str, Any] = {}
        self._sent = 0
        self._replied = asyncio.Event()
        self.late: dict[str, list[float]] | None = None

    async def join(self, info_hash: str) -> None:
        """``info_hash`` has 20 characters."""
        ids = {"info_hash": info_hash, "peer_id": f"-WW0300-{self.number:012}", "left": 7}
        self._ids = {"action": "announce", **ids}
        await self._ask()

    async def announce(self) -> None:
        self._sent += 1
        ids = (f"{self._sent:09}{self.number:010}{each}" for each in range(OFFERS))
        await self._ask([{"offer": self._session("offer"), "offer_id": each} for each in ids])

    async def _ask(self, offers: Sequence[dict[str, Any]] = ()) -> None:
        self._replied.clear()
        await self._send(offers=offers)
        await self._replied.wait()

    async def _send(self, **fields: object) -> None:
        await self._socket.send_str(json.dumps({**self._ids, **fields}))

    def _session(self, kind: str) -> dict[str, str]:
        return {"type": kind, "sdp": f"{self._side} {time.perf_counter():.6f} ".ljust(SDP_BYTES, "x")}

    async def listen(self) -> None:
        """Until it is closed. The client's library answers pings only while it reads."""
        async for message in self._socket:
            read = json.loads(message.data)
            if "interval" in read:
                self._replied.set()
            elif self.late is not None:
                await self._take(read, self.late)

    async def _take(self, read: dict[str, Any], late: dict[str, list[float]]) -> None:
        kind = "offer" if "offer" in read else "answer"
        side, sent, _ = read[kind]["sdp"].split()
        if int(side) != self._side:
            late[kind].append(time.perf_counter() - float(sent))
        if kind == "offer":
            answered = {"to_peer_id": read["peer_id"], "offer_id": read["offer_id"]}
            await self._send(answer=self._session("answer"), **answered)

    async def close(self) -> None:
        await self._socket.close()


@contextlib.asynccontextmanager
async def browsers(number: int, *ports: int) -> AsyncIterator[list[Browser]]:
    """The first at the first port, the second at the second, and so on."""
    found: list[Browser] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session, asyncio.TaskGroup() as tasks:

        async def connect(place: int) -> None:
            url = f"http://127.0.0.1:{ports[place % len(ports)]}/announce"
            found.append(Browser(await session.ws_connect(url, max_msg_size=0), place))
            tasks.create_task(found[-1].listen())

        await each(range(number), connect)
        yield found
        await each(found, Browser.close)


_Item = TypeVar("_Item")


async def each(items: Sequence[_Item], step: Callable[[_Item], Coroutine[None, None, None]]) -> None:
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await step(item)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_TOGETHER):
            tasks.create_task(work())


class Meter:
    """What a tracker and its store use; ``microseconds`` since the last look."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._before = cpu_by_part(self._pids)

    def microseconds(self, number: int) -> dict[str, float]:
        now, before = cpu_by_part(self._pids), self._before
        self._before = now
        spent = {part: now[part] - before[part] for part in now}
        return {part: 1e6 * (cpu.user + cpu.kernel) / number for part, cpu in spent.items()}

    @property
    def kilobytes(self) -> float:
        return resident_by_part(self._pids)["server"] / 1000


async def measure(pid: int, port: int, options: argparse.Namespace) -> Section:
    section, meter = Section(f"WebSockets: {options.sockets:,} of one process"), Meter(pid)
    empty, number = meter.kilobytes, options.rounds * options.sockets
    async with browsers(options.sockets, port) as found:

        def grown() -> float:
            return (meter.kilobytes - empty) / len(found)

        section.find("memory of an idle connection", grown(), "kB")
        await each(found, lambda one: one.join(f"alone {one.number:014}"))
        section.find("memory of a connection after an announce", grown(), "kB", MEMORY_GOAL_KB)
        meter.microseconds(1)
        for _ in range(options.rounds):
            await each(found, Browser.announce)
        announce = meter.microseconds(number)
        section.find("an announce with 5 offers, tracker", announce["server"], "µs", ANNOUNCE_GOAL)
        section.find("an announce with 5 offers, store", announce["store"], "µs", STORE_GOAL)
        await each(found, lambda one: one.join(f"crowd {one.number // options.swarm:014}"))
        meter.microseconds(1)
        for _ in range(options.rounds):
            await each(found, Browser.announce)
        spent = meter.microseconds(number)["server"] - announce["server"]
        section.find("an offer relayed in one process", spent / OFFERS, "µs", RELAY_GOAL)
        section.find("memory of one with two torrents", grown(), "kB", MEMORY_GOAL_KB)
    return section


async def measure_pace(pids: Sequence[int], ports: Sequence[int], options: argparse.Namespace) -> Section:
    """The sockets of each swarm spread over both processes."""
    number, interval = options.paced, options.interval
    section = Section(f"WebSockets: {number:,} of two processes, an announce each {interval} s")
    late: dict[str, list[float]] = {"offer": [], "answer": []}
    async with browsers(number, *ports) as found, asyncio.TaskGroup() as announces:
        await each(found, lambda one: one.join(f"paced {one.number // options.swarm:014}"))
        for browser in found:
            browser.late = late
        meter, began = Meter(*pids), time.monotonic()
        for place in range(int(number / interval * options.seconds)):
            await asyncio.sleep(began + place * interval / number - time.monotonic())
            announces.create_task(found[place * 7919 % number].announce())
        took, spent = time.monotonic() - began, meter.microseconds(1)
        section.find("CPU time of both processes", spent["server"] / took / 1e4, "% of a core", CORE_GOAL)
        section.find("CPU time of the store", spent["store"] / took / 1e4, "% of a core")
        for kind, seconds in late.items():
            times = in_milliseconds(seconds)
            what = "an announce to the arrival of its offer" if kind == "offer" else "an answer from peer to peer"
            section.find(f"{what}, between processes, p50", times["p50"], "ms")
            section.find(f"{what}, p99 of {len(seconds):,}", times["p99"], "ms", LATENCY_GOAL)
    return section


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sockets", type=int, default=10_000, help="connections of one process; 0: none")
    parser.add_argument("--rounds", type=int, default=2, help="announces of each connection")
    parser.add_argument("--swarm", type=int, default=50, help="peers of a swarm")
    parser.add_argument("--paced", type=int, default=5000, help="connections of two processes; 0: none")
    parser.add_argument("--interval", type=int, default=120, help="seconds between two announces of each of those")
    parser.add_argument("--seconds", type=int, default=60, help="how long they announce")
    options = parser.parse_args()
    sections = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if options.sockets:
            with tracker(directory, **_SETTINGS) as (pid, port):
                sections.append(asyncio.run(measure(pid, port, options)))
        if options.paced:
            with (
                store(directory) as (store_pid, path),
                tracker(directory, "one", TRACKER_REDIS__URL=f"unix://{path}", **_SETTINGS) as one,
                tracker(directory, "other", TRACKER_REDIS__URL=f"unix://{path}", **_SETTINGS) as other,
            ):
                pids, ports = (store_pid, one[0], other[0]), (one[1], other[1])
                sections.append(asyncio.run(measure_pace(pids, ports, options)))
    print(as_markdown(sections))
    sys.exit(0 if all(finding.reached is not False for each in sections for finding in each.findings) else 1)


if __name__ == "__main__":
    main()
