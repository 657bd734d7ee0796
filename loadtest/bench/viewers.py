"""The CPU time of the live view of a project while 1,000 viewers watch it: `python -m loadtest.bench.viewers`.

Items are finished at a steady pace, first without viewers, then with them; the difference is what they cost. Each
address of loopback has eight viewers, the most that a network may have.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path

from loadtest.bench import processes
from loadtest.bench.sections import Section
from loadtest.bench.work import claim_calls, create, finish_calls, opened, project_of
from loadtest.servers import free_port
from tracker.frontends.work.live import MAX_PER_NETWORK
from tracker.store.store import Store
from tracker.store.work.records import Claim, NewItem

VIEWERS, ITEMS_A_SECOND, SECONDS, GOAL_PERCENT = 1000, 5, 20, 10.0
_FIRST_ADDRESS = int(IPv4Address("127.1.0.1"))
_START_SECONDS = 60.0


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="viewers-") as name:
        directory, port = Path(name), free_port()
        with processes.store(directory) as (_, path):
            url = f"unix://{path}"
            listen = {"TRACKER_REDIS__URL": url, "TRACKER_WORK__LISTEN": f'["127.0.0.1:{port}"]'}
            with processes.tracker(directory, **listen) as (pid, _):
                processes.wait_until_idle([pid])
                print(asyncio.run(_measure(url, pid, port)).as_markdown())


async def _measure(url: str, pid: int, port: int) -> Section:
    section = Section(f"Live view: {ITEMS_A_SECOND} finished items a second")
    async with opened(url) as store:
        await create(store, project_of("items"), "items")
        number = ITEMS_A_SECOND * SECONDS
        alone = await _percent_of_a_core(store, pid, range(number))
        async with contextlib.AsyncExitStack() as stack:
            bytes_read = await _watch(stack, port)
            processes.wait_until_idle([pid])
            watched = await _percent_of_a_core(store, pid, range(number, 2 * number))
            section.find("viewers who read the last events", sum(map(bool, bytes_read)), "", VIEWERS, more=True)
    section.find("without viewers", alone, "% of a core")
    section.find(f"{VIEWERS:,} viewers more", watched - alone, "% of a core", GOAL_PERCENT)
    return section


async def _percent_of_a_core(store: Store, pid: int, items: Sequence[int]) -> float:
    await store.work.items.add(project_of("items"), [NewItem(f"item-{number}") for number in items])
    claims: list[Claim] = []
    for claim in claim_calls("items", len(items), claims):
        await claim(store)
    before, began = processes.cpu_of(pid), asyncio.get_running_loop().time()
    for number, finish in enumerate(finish_calls("items", claims)):
        await asyncio.sleep(max(0.0, began + number / ITEMS_A_SECOND - asyncio.get_running_loop().time()))
        await finish(store)
    seconds = asyncio.get_running_loop().time() - began
    return 100 * (processes.cpu_of(pid) - before) / seconds


async def _watch(stack: contextlib.AsyncExitStack, port: int) -> list[int]:
    """Opens the streams. Returns the bytes that each has read since its head."""
    bytes_read = [0] * VIEWERS
    ready = asyncio.Barrier(VIEWERS + 1)
    tasks = await stack.enter_async_context(asyncio.TaskGroup())
    views = [tasks.create_task(_view(ready, port, number, bytes_read)) for number in range(VIEWERS)]
    stack.callback(lambda: [view.cancel() for view in views])
    async with asyncio.timeout(_START_SECONDS):
        await ready.wait()
    return bytes_read


async def _view(ready: asyncio.Barrier, port: int, number: int, bytes_read: list[int]) -> None:
    address = str(IPv4Address(_FIRST_ADDRESS + number // MAX_PER_NETWORK))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    writer.write(f"GET /{project_of('items')}/live HTTP/1.1\r\nHost: t\r\n\r\n".encode())
    with contextlib.closing(writer):
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head:
            raise RuntimeError(head.decode("latin-1"))
        await ready.wait()
        while chunk := await reader.read(1 << 16):
            bytes_read[number] += len(chunk)


if __name__ == "__main__":
    main()
