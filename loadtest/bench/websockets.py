"""WebSockets of one process: memory, CPU time of an announce with 5 offers and of a relayed offer. And of two processes
on one store, whose peers announce at their interval and answer each offer: CPU time, and how long an offer and an
answer take from one process to the other.

CPU time counts, so the machine need not be idle, but for the times of relays. The exit status is 1 where a goal is
missed.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

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
        section.find("memory of one with two torrents", (meter.kilobytes - empty) / len(sockets), "kB", MEMORY_GOAL_KB)
        await each(crowds, Browser.close)
    return section


class Peer:
    """One that answers every offer. Offers and answers say when they were sent, in the place of a description; ``late``
    gets how long those of the other process took. ``side`` is the process."""

    def __init__(
        self, socket: aiohttp.ClientWebSocketResponse, number: int, swarm: int, late: dict[str, list[float]]
    ) -> None:
        self._socket, self._late, self._side = socket, late, number % 2
        self._ids: dict[str, Any] = {"action": "announce", "info_hash": f"paced {number // swarm:014}"}
        self._ids |= {"peer_id": f"-WW0300-{number:012}", "left": 7}
        self._sent = 0
        self.replied = asyncio.Event()

    async def announce(self, offers: int = OFFERS) -> None:
        self._sent += 1
        made = [
            {"offer": {"type": "offer", "sdp": self._description}, "offer_id": f"{self._sent:019}{each}"}
            for each in range(offers)
        ]
        self.replied.clear()
        await self._socket.send_str(json.dumps({**self._ids, "offers": made}))

    @property
    def _description(self) -> str:
        return f"{self._side} {time.perf_counter():.6f} ".ljust(SDP_BYTES, "x")

    async def listen(self) -> None:
        async for message in self._socket:
            read = json.loads(message.data)
            if "interval" in read:
                self.replied.set()
            for kind in ("offer", "answer"):
                if kind in read:
                    side, sent, _ = read[kind]["sdp"].split()
                    if int(side) != self._side:
                        self._late[kind].append(time.perf_counter() - float(sent))
            if "offer" in read:
                answer = {"answer": {"type": "answer", "sdp": self._description}, "offer_id": read["offer_id"]}
                await self._socket.send_str(json.dumps({**self._ids, "to_peer_id": read["peer_id"], **answer}))

    async def close(self) -> None:
        await self._socket.close()


async def measure_pace(pids: Sequence[int], ports: Sequence[int], options: argparse.Namespace) -> Section:
    """The sockets of each swarm spread over both processes."""
    number, interval = options.paced, options.interval
    section = Section(f"WebSockets: {number:,} of two processes, an announce each {interval} s")
    late: dict[str, list[float]] = {"offer": [], "answer": []}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session, asyncio.TaskGroup() as tasks:
        peers = []
        for each in range(number):
            socket = await session.ws_connect(f"http://127.0.0.1:{ports[each % 2]}/announce", max_msg_size=0)
            peers.append(Peer(socket, each, options.swarm, late))
            tasks.create_task(peers[-1].listen())
            await peers[-1].announce(0)
            await peers[-1].replied.wait()
        meter, began, announces = Meter(*pids), time.monotonic(), int(number / interval * options.seconds)
        for place in range(announces):
            await asyncio.sleep(began + place * interval / number - time.monotonic())
            await peers[place * 7919 % number].announce()
        took = time.monotonic() - began
        spent = meter.microseconds(1)
        section.find("CPU time of both processes", spent["server"] / took / 1e4, "% of a core", CORE_GOAL)
        section.find("CPU time of the store", spent["store"] / took / 1e4, "% of a core")
        for kind, seconds in late.items():
            found = in_milliseconds(seconds)
            what = "an announce to the arrival of its offer" if kind == "offer" else "an answer from peer to peer"
            section.find(f"{what}, between processes, p50", found["p50"], "ms")
            section.find(f"{what}, p99 of {len(seconds):,}", found["p99"], "ms", LATENCY_GOAL)
        for peer in peers:
            await peer.close()
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
