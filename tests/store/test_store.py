"""The store object: one prefix, built once."""

import hashlib
from typing import Any

import pytest

from tracker.store.client import scripts as module
from tracker.store.client.connection import Connection, connect
from tracker.store.client.scripts import Scripts, library_name
from tracker.store.store import Store


async def test_each_script_is_hashed_once(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[bytes] = []

    class Counting:
        @staticmethod
        def sha1(text: bytes, **options: Any) -> Any:
            hashed.append(text)
            return hashlib.sha1(text, **options)  # noqa: S324  # as EVALSHA names scripts

    library_name()  # names the library by a hash of its own, once
    monkeypatch.setattr(module, "hashlib", Counting)
    connection = Connection(connect(redis_url, connect_timeout=5, timeout=5))
    Store(connection, "x:")
    assert len(hashed) == len(set(hashed)) == len(Scripts.__annotations__)
    await connection.close()


async def test_the_shared_secret_is_read_once_and_given_to_unique_users(redis_url: str, prefix: str) -> None:
    connection = Connection(connect(redis_url, connect_timeout=5, timeout=5))
    one, other = Store(connection, prefix), Store(connection, prefix)
    assert one.secret == b""
    assert await one.load_secret() == one.secret == await other.load_secret()
    assert len(one.secret) == 32
    await connection.close()
