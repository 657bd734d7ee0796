"""The store object: one prefix, built once."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

import tracker
from tests.store.client.test_scripts import SCRIPTS
from tracker.store.client import scripts as module
from tracker.store.client.connection import Connection, connect
from tracker.store.client.scripts import Scripts, announce_library
from tracker.store.store import Store


async def test_each_script_is_hashed_once(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[bytes] = []

    class Counting:
        @staticmethod
        def sha1(text: bytes, **options: Any) -> Any:
            hashed.append(text)
            return hashlib.sha1(text, **options)  # noqa: S324  # as EVALSHA names scripts

    announce_library()  # names the library by a hash of its own, once
    monkeypatch.setattr(module, "hashlib", Counting)
    module._sha_of.cache_clear()
    connection = Connection(connect(redis_url, connect_timeout=5, timeout=5))
    for prefix in ("x:", "y:"):
        scripts = Scripts(connection, prefix)
        assert scripts.heartbeat.head[1] != scripts.reap.head[1] and scripts.reap is scripts.reap
    assert len(hashed) == len(set(hashed)) == 2
    await connection.close()


def test_each_script_that_is_named_is_a_file_and_each_file_is_named() -> None:
    named = {
        name
        for file in Path(tracker.__file__).parent.rglob("*.py")
        for name in re.findall(r"\b_?scripts\.([a-z_]+)\b", file.read_text(encoding="utf-8"))
    }
    assert {name.removesuffix("_when_full") for name in named} == set(SCRIPTS)


async def test_the_shared_secret_is_read_once_and_given_to_unique_users(redis_url: str, prefix: str) -> None:
    connection = Connection(connect(redis_url, connect_timeout=5, timeout=5))
    one, other = Store(connection, prefix), Store(connection, prefix)
    assert one.secret == b""
    assert await one.load_secret() == one.secret == await other.load_secret()
    assert len(one.secret) == 32
    await connection.close()
