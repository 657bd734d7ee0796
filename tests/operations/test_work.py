from collections.abc import Awaitable, Callable
from typing import Any, cast

from tests.store.harness import Store, info_hash
from tests.store.work.harness import add, check_work, claimed, project
from tracker.operations.work import add_items, create_project, purge_items
from tracker.store.client.connection import Connection, connect
from tracker.store.store import Store as RealStore
from tracker.store.work.records import NewItem, Place


class Interrupted(Connection):
    """Something else happens in the store after the first page was read."""

    def __init__(self, url: str, then: Callable[[], Awaitable[None]]) -> None:
        super().__init__(connect(url, connect_timeout=5, timeout=5))
        self.then: Callable[[], Awaitable[None]] | None = then

    async def command(self, *args: Any) -> Any:
        answer = await super().command(*args)
        if args[0] == "ZRANGE" and self.then is not None:
            then, self.then = self.then, None
            await then()
        return answer


async def test_an_item_that_moves_while_its_list_is_purged_stays_where_it_is(store: Store) -> None:
    await project(store, start_budget=9)
    await add(store, "asked", claimants=("alice",))
    await add(store, "a", "b")
    done = [(await claimed(store, "alice")).item for _ in range(3)]
    for name in done:
        await store.work.claims.done("proj", "alice", name)

    async def again() -> None:
        await store.work.items.add("proj", [NewItem("a")], again=True)

    async def finish() -> None:
        await store.work.claims.done("proj", "bob", (await claimed(store, "bob")).item)

    for place, then, removed in (("done", again, 2), ("todo", finish, 0)):
        connection = Interrupted(store.url, then)
        try:
            other = RealStore(connection, store.keys.prefix, clock=store.clock)
            assert await purge_items(other, "proj", cast(Place, place)) == removed
        finally:
            await connection.close()
    assert (await store.work.items.status("proj", "a")).status == "done"
    assert (await check_work(store)).wanted == 0


async def test_for_the_v2_half_of_a_hybrid_torrent_its_v1_half_is_added(store: Store) -> None:
    """Its claims are verified by what the user has on the v1 half."""
    for number in (1, 2):
        await store.torrents.add(info_hash(number))
    await store.hybrids.link(info_hash(2), info_hash(1))
    await create_project(store, "seeds", "seeding", {})
    await add_items(store, "seeds", [NewItem(info_hash(2).hex())])
    page = await store.work.items.page("seeds", "todo")
    assert [name for name, _ in page.entries] == [info_hash(1).hex()]
