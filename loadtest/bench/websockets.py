"""WebSockets of one process: memory, CPU time of an announce with 5 offers and of a relayed offer.

CPU time counts, so the machine need not be idle. The exit status is 1 where a goal is missed.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import aiohttp

from loadtest.bench.processes import cpu_by_part, resident_by_part, tracker
from loadtest.bench.sections import Section

OFFERS, SDP_BYTES = 5, 700
MEMORY_GOAL_KB, ANNOUNCE_GOAL, STORE_GOAL, RELAY_GOAL = 25.0, 250.0, 40.0, 40.0
"""Of a connection; microseconds of an announce in the process and in the store, and of a relayed offer."""
_TOGETHER = 50
"""Announces under way."""
_SETTINGS = {"TRACKER_HTTP__MAX_CONNECTIONS": "100000"}


class Browser:
    """``info_hash`` has 20 characters."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, number: int, info_hash: str) -> None:
        self._socket, self.offered = socket, 0
        ids = {"action": "announce", "info_hash": info_hash, "peer_id": f"-WW0300-{number:012}", "left": 7}
        offers = [
            {"offer": {"type": "offer", "sdp": "x" * SDP_BYTES}, "offer_id": f"{number:019}{each}"}
            for each in range(OFFERS)
        ]
        self._join, self._announce = json.dumps(ids), json.dumps({**ids, "offers": offers})

    async def join(self) -> None:
        await self._ask(self._join)

    async def announce(self) -> None:
        await self._ask(self._announce)

    async def _ask(self, text: str) -> None:
        """Waits for the reply; counts the offers that come before it."""
        await self._socket.send_str(text)
        while "interval" not in await self._socket.receive_json():
            self.offered += 1

    async def close(self) -> None:
        await self._socket.close()


Step = Callable[[Browser], Coroutine[None, None, None]]


async def each(browsers: Sequence[Browser], step: Step) -> None:
    waiting = iter(browsers)

    async def work() -> None:
        for browser in waiting:
            await step(browser)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_TOGETHER):
            tasks.create_task(work())


class Meter:
    """What a tracker and its store use; ``microseconds`` since the last look."""

    def __init__(self, pid: int) -> None:
        self._pids = [pid]
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
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        empty, url = meter.kilobytes, f"http://127.0.0.1:{port}/announce"
        sockets = [await session.ws_connect(url, max_msg_size=0) for _ in range(options.sockets)]
        section.find("memory of an idle connection", (meter.kilobytes - empty) / len(sockets), "kB")
        alone = [Browser(socket, number, f"alone {number:014}") for number, socket in enumerate(sockets)]
        await each(alone, Browser.join)
        used = (meter.kilobytes - empty) / len(sockets)
        section.find("memory of a connection after an announce", used, "kB", MEMORY_GOAL_KB)
        meter.microseconds(1)
        for _ in range(options.rounds):
            await each(alone, Browser.announce)
        number = options.rounds * len(alone)
        announce = meter.microseconds(number)
        section.find("an announce with 5 offers, tracker", announce["server"], "µs", ANNOUNCE_GOAL)
        section.find("an announce with 5 offers, store", announce["store"], "µs", STORE_GOAL)
        crowds = [
            Browser(socket, number, f"crowd {number // options.swarm:014}") for number, socket in enumerate(sockets)
        ]
        await each(crowds, Browser.join)
        meter.microseconds(1)
        for _ in range(options.rounds):
            await each(crowds, Browser.announce)
        spent = meter.microseconds(number)["server"] - announce["server"]
        relayed = OFFERS * number
        section.find("an offer relayed in one process", spent * number / relayed, "µs", RELAY_GOAL)
        section.find("memory of a connection in the end", (meter.kilobytes - empty) / len(sockets), "kB")
        await each(crowds, Browser.close)
    return section


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sockets", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=2, help="announces of each connection")
    parser.add_argument("--swarm", type=int, default=50, help="peers of a swarm")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, tracker(Path(directory), **_SETTINGS) as (pid, port):
        section = asyncio.run(measure(pid, port, options))
    print(section.as_markdown())
    sys.exit(0 if all(finding.reached is not False for finding in section.findings) else 1)


if __name__ == "__main__":
    main()
