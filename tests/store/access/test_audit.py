"""The audit log: what an entry keeps, how entries are found, and that their number, age and size are bounded."""

from dataclasses import asdict, replace
from typing import Any

import orjson
import pytest

from tests.store.harness import Store
from tracker.errors import ClientError
from tracker.store.access import audit
from tracker.store.access.audit import MAX_SCANNED, Audit, AuditEntry, AuditFilter, ChangedObject

ENTRY = AuditEntry(
    actor="site",
    token_id="0123456789ab",
    role="operate",
    way="api",
    address="192.0.2.1",
    operation="user.edit",
    objects=(ChangedObject("user", "7", {"name": "Alice"}, {"name": "Bob"}),),
    counts={"added": 2},
    details={"queue": "todo"},
)


async def found(store: Store, **wanted: Any) -> list[str]:
    """The operations of the entries that match, newest first."""
    return [entry.operation for entry in (await store.audit.page(AuditFilter(**wanted)))[0]]


async def test_an_entry_is_read_as_it_was_written(store: Store) -> None:
    assert await store.audit.add(ENTRY)
    ((entry,), cursor) = await store.audit.page(AuditFilter())
    assert replace(entry, id="", at=0) == ENTRY
    seconds, _ = await store.redis.time()
    assert 0 <= seconds - entry.at <= 60 and cursor == ""
    assert asdict(entry)["objects"] == (
        {"kind": "user", "id": "7", "before": {"name": "Alice"}, "after": {"name": "Bob"}},
    )


async def test_entries_are_found_by_what_they_are(store: Store) -> None:
    torrent = ChangedObject("torrent", "ab" * 20)
    await store.audit.add(replace(ENTRY, operation="torrent.add", objects=(torrent,), way="cli", actor="root"))
    await store.audit.add(replace(ENTRY, operation="user.edit"))
    await store.audit.add(replace(ENTRY, operation="user.delete", token_id="b" * 12))
    await store.audit.add(replace(ENTRY, operation="users"))
    everything = ["users", "user.delete", "user.edit", "torrent.add"]
    for wanted, expected in (
        ({}, everything),
        ({"actor": "site"}, everything[:3]),
        ({"actor": "b" * 12}, ["user.delete"]),
        ({"actor": "sit"}, []),
        ({"operation": "user"}, ["user.delete", "user.edit"]),
        ({"operation": "user.edit"}, ["user.edit"]),
        ({"way": "cli"}, ["torrent.add"]),
        ({"object": "AB" * 20}, ["torrent.add"]),
        ({"object": "7", "operation": "user.edit"}, ["user.edit"]),
    ):
        assert await found(store, **wanted) == expected, wanted


async def test_entries_are_found_by_their_time(store: Store) -> None:
    for second in (10, 20, 30):
        await store.redis.xadd(store.keys.audit(), {"operation": str(second)}, id=f"{second}999-0")
    assert await found(store, since=20) == ["30", "20"]
    assert await found(store, until=20) == ["20", "10"]
    assert await found(store, since=11, until=29) == ["20"]


async def test_pages_continue_with_older_entries(store: Store) -> None:
    for number in range(5):
        await store.audit.add(replace(ENTRY, operation=str(number)))
    pages, cursor = [], ""
    for _ in range(3):
        page, cursor = await store.audit.page(AuditFilter(), cursor, 2)
        pages.append([entry.operation for entry in page])
    assert (pages, cursor) == ([["4", "3"], ["2", "1"], ["0"]], "")
    for wrong in ("x", "1", "1-x", "1-1-1", "-"):
        with pytest.raises(ClientError, match="cursor"):
            await store.audit.page(AuditFilter(), wrong)


async def test_a_rare_entry_is_found_over_several_pages(store: Store) -> None:
    """One page reads a bounded number of entries."""
    key = store.keys.audit()
    await store.redis.xadd(key, {"operation": "rare"}, id="1-1")
    fill = "for n = 0, ARGV[1] - 1 do redis.call('XADD', KEYS[1], '2-' .. n, 'operation', 'usual') end"
    await store.redis.eval(fill, 1, key, MAX_SCANNED)
    page, cursor = await store.audit.page(AuditFilter(operation="rare"))
    assert (page, cursor) == ([], "2-0")
    page, cursor = await store.audit.page(AuditFilter(operation="rare"), cursor)
    assert ([entry.operation for entry in page], cursor) == (["rare"], "")


async def test_the_oldest_entries_are_deleted(store: Store) -> None:
    audit = Audit(store.shards.main, 3)
    for number in range(5):
        await audit.add(replace(ENTRY, operation=str(number)))
    assert await found(store) == ["4", "3", "2"]


async def test_entries_are_deleted_after_a_year(store: Store) -> None:
    seconds, _ = await store.redis.time()
    for days in (400, 365):
        at = 1000 * (seconds - days * 86_400)
        await store.redis.xadd(store.keys.audit(), {"operation": str(days)}, id=f"{at}-0")
    await store.audit.add(ENTRY)
    assert await found(store) == ["user.edit", "365"]


async def test_the_size_of_an_entry_is_bounded(store: Store) -> None:
    values = {f"field {number}": "é" * 1000 for number in range(100)}
    objects = tuple(ChangedObject("user", str(number), values, values) for number in range(50))
    await store.audit.add(replace(ENTRY, actor="a" * 9999, address="b" * 9999, objects=objects))
    for key in (store.keys.audit(), store.keys.audit_rows()):
        for _, fields in await store.redis.xrange(key):
            assert sum(map(len, fields.values())) < 10_000 + 8192
    entries, _ = await store.audit.page(AuditFilter())
    assert [each.id for entry in entries for each in entry.objects] == [str(number) for number in range(50)]
    assert len(entries[0].objects) == 10 and entries[0].counts
    short = replace(ENTRY, objects=(ChangedObject("user", "7", {}, {"name": "é" * 201}),))
    await store.audit.add(short)
    entry = (await store.audit.page(AuditFilter()))[0][0]
    assert entry.objects[0].after == {"name": "é" * 199 + "…"}


async def test_objects_of_a_large_call_are_found_by_their_id(store: Store) -> None:
    """With their values: as many are in an entry as fit."""
    values = [{"name": "é" * 199, "reason": str(number)} for number in range(200)]
    objects = tuple(ChangedObject("user", str(number), {}, values[number]) for number in range(200))
    await store.audit.add(replace(ENTRY, operation="user.batch", objects=objects))
    await store.audit.add(ENTRY)
    for number in (0, 9, 10, 123, 199):
        entry, *_ = (await store.audit.page(AuditFilter(object=str(number), operation="user.batch")))[0]
        (named,) = (each for each in entry.objects if each.id == str(number))
        assert dict(named.after) == values[number]
    entries, _ = await store.audit.page(AuditFilter())
    assert [each.id for entry in entries for each in entry.objects] == ["7", *map(str, range(200))]
    assert [bool(entry.counts) for entry in entries][:3] == [True, True, False]
    assert len(entries) > 2 + audit.FURTHER_A_CALL  # of two calls of the script
    ids = [tuple(map(int, entry.id.split("-"))) for entry in entries]
    assert ids == sorted(ids, reverse=True) and len(set(ids)) == len(ids)


async def test_pages_merge_both_streams(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry is on one page, wherever the pages end, and however many entries are read at once."""
    for at in range(1, 8):
        await store.redis.xadd(store.keys.audit(), {"operation": f"call {at}"}, id=f"{at}-0")
        if at in (2, 3, 6):
            for number in range(4):
                fields = {"operation": f"rows {at} {number}"}
                await store.redis.xadd(store.keys.audit_rows(), fields, id=f"{at}-{1000000 + number}")
    everything = await found(store)
    assert everything[:2] == ["call 7", "rows 6 3"] and len(set(everything)) == 19
    for chunk in (1, 2, 5):
        monkeypatch.setattr(audit, "_CHUNK", chunk)
        for limit in (1, 3, 100):
            read, cursor = list[str](), ""
            while True:
                page, cursor = await store.audit.page(AuditFilter(), cursor, limit)
                read += (entry.operation for entry in page)
                if not cursor:
                    break
            assert read == everything


async def test_further_entries_are_in_the_second_of_their_call(store: Store) -> None:
    """Their ids are a millisecond earlier."""
    await store.redis.xadd(store.keys.audit(), {"operation": "before", "counts": "{}"}, id="6999-0")
    await store.redis.xadd(store.keys.audit(), {"operation": "call", "counts": "{}"}, id="7000-0")
    await store.redis.xadd(store.keys.audit_rows(), {"operation": "rows"}, id="6999-1000000")
    for wanted, operations in (
        (AuditFilter(since=7), ["call", "rows"]),
        (AuditFilter(until=6), ["before"]),
        (AuditFilter(since=7, until=7), ["call", "rows"]),
    ):
        page, _ = await store.audit.page(wanted)
        assert [(each.operation, each.further) for each in page] == [(each, each == "rows") for each in operations]


async def test_large_calls_do_not_push_other_changes_out(store: Store) -> None:
    """The streams are bounded apart."""
    limited = Audit(store.shards.main, 30)
    await limited.add(ENTRY)
    for _ in range(3):
        many = tuple(ChangedObject("user", str(number)) for number in range(500))
        await limited.add(replace(ENTRY, operation="user.batch", objects=many))
    assert await store.redis.xlen(store.keys.audit_rows()) == 3
    assert [each for each in await found(store) if each == "user.edit"] == ["user.edit"]


async def test_further_entries_follow_a_clock_that_went_back(store: Store) -> None:
    key = store.keys.audit_rows()
    await store.redis.xadd(key, {"operation": "later"}, id="99999999999999-1000000")
    many = tuple(ChangedObject("user", str(number)) for number in range(100))
    assert await store.audit.add(replace(ENTRY, objects=many))
    ids = [id.decode() for id, _ in await store.redis.xrange(key)]
    assert ids == [f"99999999999999-{1000000 + number}" for number in range(3)]


@pytest.mark.parametrize("objects", ["", "{", "7", "[7]", '[{"before": 7, "after": {"a": [1]}}]'])
async def test_an_invalid_stored_entry_is_read(store: Store, objects: str) -> None:
    fields = {
        "role": "owner",
        "way": "post",
        "objects": objects,
        "counts": '{"a": "b"}',
        "details": "[]",
        b"\xff": b"\xff",
    }
    await store.redis.xadd(store.keys.audit(), fields)
    ((entry,), _) = await store.audit.page(AuditFilter())
    assert (entry.role, entry.way, dict(entry.counts)) == ("read", "cli", {})
    orjson.dumps(asdict(entry))


async def test_text_that_is_not_unicode_is_replaced(store: Store) -> None:
    objects = (ChangedObject("client", "\udcff", {}, {"\udcff": "\udcff"}),)
    assert await store.audit.add(replace(ENTRY, actor="\udcff", address="\udcff", objects=objects))
    ((entry,), _) = await store.audit.page(AuditFilter())
    assert (entry.actor, entry.objects) == ("?", (ChangedObject("client", "?", {}, {"?": "?"}),))


async def test_an_entry_that_the_store_refuses_is_no_error(store: Store) -> None:
    await store.redis.set(store.keys.audit(), "of another program")
    assert not await store.audit.add(ENTRY)


async def test_no_objects_are_left_without_the_entry_of_their_call(store: Store) -> None:
    """The entry is written first."""
    await store.redis.set(store.keys.audit(), "of another program")
    many = tuple(ChangedObject("user", str(number)) for number in range(100))
    assert not await store.audit.add(replace(ENTRY, objects=many))
    assert not await store.redis.exists(store.keys.audit_rows())


async def test_an_entry_stays_if_its_further_entries_cannot_be_written(store: Store) -> None:
    await store.redis.set(store.keys.audit_rows(), "of another program")
    many = tuple(ChangedObject("user", str(number)) for number in range(100))
    assert not await store.audit.add(replace(ENTRY, objects=many))
    assert await store.redis.xlen(store.keys.audit()) == 1
