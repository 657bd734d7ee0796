"""Requests with a key of the caller's."""

import pytest

from tests.store.harness import Store
from tracker.errors import ClientError


async def test_a_key_belongs_to_one_request(store: Store) -> None:
    assert await store.repeats.begin("k", b"one") is None
    assert await store.repeats.begin("k", b"one") is None
    await store.repeats.finish("k", b"reply")
    assert await store.repeats.begin("k", b"one") == b"reply"
    for key, request in (("k", b"two"), ("", b"x"), ("a b", b"x"), ("é", b"x"), ("k" * 256, b"x")):
        with pytest.raises(ClientError):
            await store.repeats.begin(key, request)
