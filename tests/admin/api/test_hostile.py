"""Hostile uploads and other input: refused in bounded time and memory, never with 500."""

import asyncio
import io
from collections.abc import AsyncIterator

import aiohttp
import bencodepy
import pytest
from aiohttp import FormData

from tests.admin.api.api_client import program
from tests.admin.conftest import Admin, Serve
from tracker.bittorrent import InfoHash

_HASH = InfoHash(bytes(range(20)))
UPLOAD = 1024 * 1024


def form(content: bytes) -> FormData:
    made = FormData()
    made.add_field("file", io.BytesIO(content), filename="bomb.torrent")
    return made


def info(**changes: object) -> bytes:
    fields = {"length": 1, "name": "a", "piece length": 16384, "pieces": b"x" * 20} | changes
    encoded: bytes = bencodepy.encode({"info": fields})
    return encoded


BOMBS = {
    "lists in lists": b"d4:info" + b"l" * UPLOAD,
    "dictionaries in dictionaries": b"d4:info" + b"d1:a" * (UPLOAD // 4),
    "a length beyond the end": b"d4:info999999999:x",
    "a length of many digits": b"d4:info" + b"9" * UPLOAD + b":x",
    "a number of many digits": b"d4:infod6:lengthi" + b"9" * UPLOAD + b"e",
    "a negative length": info(length=-1),
    "a size beyond 64 bits": info(files=[{"length": 2**63 - 1, "path": ["a"]}] * 3),
    "a name that is none": info(name=1),
    "pieces that are none": info(pieces="abc"),
    "a tree that is none": b"d4:infod9:file treei1e12:meta versioni2e4:name1:a12:piece lengthi16384eee",
    "two infos": info()[:-1] + info()[1:],
    "nothing": b"",
    "zeros": bytes(1000),
}


@pytest.mark.parametrize("name", BOMBS)
async def test_decompression_and_nesting_bombs_are_refused(admin: Admin, name: str) -> None:
    async with program(admin) as asking:
        await asking.ask("POST", "/torrent-files", 422, data=form(BOMBS[name][:UPLOAD]))
        assert (await asking.get("/torrents"))["total"] == 0


async def test_a_torrent_with_very_many_files_is_accepted(admin: Admin) -> None:
    data = info(files=[{"length": 1, "path": ["a"]}] * 20_000, name="many", pieces=b"x" * 40)
    async with program(admin) as asking:
        added = await asking.ask("POST", "/torrent-files", 201, data=form(data))
    assert added["torrents"][0]["name"] == "many"


@pytest.mark.parametrize(
    "name", [b"a\0b\x1b[31m", b"\xff\xfe", b"\xed\xa0\x80", b"x" * 5000, b"<img src=x>", b"\r\nX: y"]
)
async def test_names_in_files_are_made_printable(admin: Admin, name: bytes) -> None:
    async with program(admin) as asking:
        reply = await asking.ask("POST", "/torrent-files", 201, data=form(info(name=name)))
        (added,) = reply["torrents"]
        assert added["name"].isprintable() and 0 < len(added["name"]) <= 255
        assert (await asking.get(f"/torrents/{added['info_hash']}"))["name"] == added["name"]


async def test_a_body_that_is_too_large_is_refused(serve: Serve) -> None:
    admin = await serve(max_upload_bytes=2048)
    async with program(admin) as asking:
        await asking.ask("POST", "/torrent-files", 413, data=form(b"x" * 3000))
        body = b'{"name": "' + b"x" * 3000 + b'"}'
        await asking.ask("POST", "/tokens", 413, data=body, headers={"Content-Type": "application/json"})


async def test_json_bodies_are_limited_to_64_kib(admin: Admin) -> None:
    """Listing the errors of a million names would take seconds and a gigabyte."""
    body = b"{%b}" % b",".join(b'"%d":1' % number for number in range(10_000))

    async def unannounced() -> AsyncIterator[bytes]:
        yield body

    async with program(admin) as asking:
        for data in (body, unannounced()):
            await asking.ask("POST", "/torrents", 413, data=data, headers={"Content-Type": "application/json"})
        name = "\U0001f331" * 1000
        sent = {"info_hash": _HASH.hex(), "name": name, "reason": name}
        await asking.ask("POST", "/torrents", 201, json=sent)


async def test_a_body_without_end_is_refused_before_its_end(serve: Serve) -> None:
    admin = await serve(max_upload_bytes=4096)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        while sent < 500_000_000:
            sent += 65_536
            yield bytes(65_536)
            await asyncio.sleep(0)

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    async with admin.client("admin") as session:
        try:
            async with session.post("/api/v1/torrent-files", data=endless(), headers=headers) as response:
                assert response.status == 413
        except aiohttp.ClientConnectionError:
            pass  # refused and closed during the upload
    assert sent < 500_000_000


async def test_invalid_data_in_the_store_breaks_no_endpoint(admin: Admin) -> None:
    """A site shares the store; its invalid data yields wrong values, and no errors."""
    command, keys = admin.store.connection.command, admin.store.keys
    (added, _), info_hash = await admin.store.torrents.add(_HASH, {}), _HASH
    await command("HSET", keys.torrent(info_hash), "name", b"\xff\xed\xa0\x80", "seeders", "9" * 400)
    await command("HSET", keys.torrent(info_hash), "multi_up", "nan", "leechers", "-1", "enabled", "maybe")
    await command("SET", keys.stat("announces"), "many")
    await command("HSET", keys.failures(), b"\xff", "x")
    user = await admin.store.users.add("7")
    await command("HSET", keys.user("7"), "uploaded", "9" * 400, "downloaded", "x")
    await command("SADD", keys.user_set("7", "hnr"), "x:y", added)
    await command("SADD", keys.allowed_clients(), b"\xff\0")
    async with program(admin) as asking:
        for path in (
            "/torrents",
            f"/torrents/{info_hash.hex()}",
            "/statistics",
            "/users",
            f"/users/{user.user_id}",
            "/users/7/torrents/hnr",
            "/clients",
            "/counters/announces",
        ):
            await asking.get(path)
