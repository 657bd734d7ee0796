"""Tokens, sessions and sign-in links: what grants access, how long it is valid, and that stored values grant none."""

import asyncio
import glob
import hmac
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import pytest

from loadtest.servers import Server
from tests.store.harness import Store, running
from tracker.bittorrent import Address
from tracker.errors import ClientError, Conflict
from tracker.store.access import tokens
from tracker.store.access.tokens import LINK_NAME, LINK_SECONDS, ROLES, Session, Token, may
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Shard
from tracker.store.swarms.rules import SwarmRules


async def link(store: Store) -> tuple[Session, str] | None:
    return await store.tokens.sign_in_by_link(await store.tokens.new_link(), 3600)


async def test_a_token_is_valid_until_it_is_revoked(store: Store) -> None:
    token, text = await store.tokens.create(" site ", "admin")
    other, _ = await store.tokens.create("prometheus", "read")
    assert (token.name, token.role, token.last_used) == ("site", "admin", None)
    assert await store.tokens.verify(text) == token
    assert await store.tokens.any()
    assert {each.name for each in await store.tokens.list()} == {"site", "prometheus"}
    assert (await store.tokens.revoke("site")).token_id == token.token_id
    assert await store.tokens.verify(text) is None
    assert await store.tokens.list() == [other]
    await store.tokens.revoke(other.token_id)
    assert not await store.tokens.any()


async def test_an_incomplete_token_is_refused(store: Store) -> None:
    token, text = await store.tokens.create("site", "admin")
    other, _ = await store.tokens.create("other", "admin")
    wrong = [
        "",
        text[:-1],
        text + "a",
        text + "\n",
        " " + text,
        text.upper(),
        text.replace(token.token_id, other.token_id),
        text[:-1] + ("a" if text[-1] != "a" else "b"),
        f"swk_{token.token_id}_",
        "swk_*_" + "a" * 43,
        "swk_" + "٣" * 12 + "_" + "a" * 43,
    ]
    assert [await store.tokens.verify(each) for each in wrong] == [None] * len(wrong)
    assert await store.tokens.verify(text)


async def test_a_token_has_256_random_bits_and_is_stored_as_its_hash(store: Store) -> None:
    texts = [(await store.tokens.create(str(number), "read"))[1] for number in range(5)]
    secrets = {text.split("_", 2)[2] for text in texts}
    assert len(secrets) == 5 and all(len(secret) == 43 for secret in secrets)
    kept = b"".join(await dump(store))
    assert not any(secret.encode() in kept for secret in secrets)


async def dump(store: Store) -> list[bytes]:
    """All stored values as they are stored."""
    return [part for key, value in (await store.dump()).items() for part in (key, value)]


async def test_hashes_are_compared_in_constant_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[Any, Any]] = []
    really = hmac.compare_digest

    def compare(a: Any, b: Any) -> bool:
        compared.append((a, b))
        return bool(really(a, b))

    monkeypatch.setattr(hmac, "compare_digest", compare)
    _, text = await store.tokens.create("site", "admin")
    assert await store.tokens.verify(text)
    assert not await store.tokens.verify(text[:-2] + "__")
    assert [len(a) == len(b) == 64 for a, b in compared] == [True, True]


async def test_names_are_unique_and_printable(store: Store) -> None:
    token, _ = await store.tokens.create("x" * 64, "read")
    for name in ("", "   ", "x" * 65, "a\x1bb", "a\nb", "\u202eb", token.token_id):
        with pytest.raises(ClientError, match="name"):
            await store.tokens.create(name, "read")
    with pytest.raises(ClientError, match="exists"):
        await store.tokens.create("x" * 64, "admin")
    made = await asyncio.gather(*(store.tokens.create("same", "read") for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(each, tuple) for each in made) == 1
    with pytest.raises(ClientError, match="no such token"):
        await store.tokens.revoke("nobody")


async def test_a_shard_is_given_all_tokens_and_sessions(redis_url: str, prefix: str) -> None:
    """As after it was unavailable: what was revoked meanwhile is gone, and new ones are there."""
    async with running(Store(redis_url, Keys(prefix), SwarmRules(), shards=2)) as store:
        one, other = store.shards
        _, text = await store.tokens.create("site", "admin")
        await store.tokens.create("revoked", "admin")
        signed_in = await store.tokens.sign_in_by_token(text, 3600)

        async def contents(shard: Shard) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for key in sorted(await store.redis.keys(f"{glob.escape(shard.keys.prefix)}admin:*")):
                name, kind = key.decode().removeprefix(shard.keys.prefix), await store.redis.type(key)
                is_set = kind == b"zset"
                found[name] = await (store.redis.zrange(key, 0, -1) if is_set else store.redis.hgetall(key))
            return found

        before = await contents(one)
        assert len(before) == 5 and await contents(other) == before and signed_in is not None
        key = f"{other.keys.prefix}admin:session:"
        (digest,) = await store.redis.zrange(other.keys.admin_sessions(), 0, -1)
        assert 0 < await store.redis.ttl(key + digest.decode()) <= 3600
        await store.redis.delete(other.keys.admin_sessions(), key + digest.decode())
        await store.tokens.revoke("revoked")
        (gone,) = set(before) - set(await contents(one))
        await store.redis.hset(other.keys.prefix + gone, "name", "revoked")
        await store.redis.zadd(other.keys.admin_tokens(), {gone.rpartition(":")[2]: 0})
        await store.upgrade()
        await store.copy_access([other])
        assert await contents(other) == await contents(one)
        assert 0 < await store.redis.ttl(key + digest.decode()) <= 3600


async def test_a_full_shard_forgets_no_token_that_is_to_be_revoked(
    start_server: Callable[..., Server], prefix: str
) -> None:
    """A copy that fails, of a shard that does not answer at the revocation then."""
    server = start_server("--appendonly", "no")
    async with running(Store(server.url, Keys(prefix), SwarmRules(), shards=2)) as store:
        shard = store.shards[1]
        token, _ = await store.tokens.create("site", "admin")
        await store.upgrade()
        await store.redis.config_set("maxmemory", 1)
        await store.copy_access([shard])
        await store.redis.config_set("maxmemory", 0)
        await store.redis.delete(store.keys.admin_tokens(), store.keys.admin_token(token.token_id))
        await store.copy_access([shard])
        assert not await store.redis.exists(shard.keys.admin_token(token.token_id))


async def test_a_broken_key_is_not_copied_and_stops_no_other_copy(redis_url: str, prefix: str) -> None:
    async with running(Store(redis_url, Keys(prefix), SwarmRules(), shards=2)) as store:
        shard = store.shards[1]
        await store.upgrade()
        broken, _ = await store.tokens.create("broken", "admin")
        token, _ = await store.tokens.create("site", "admin")
        for place in store.shards.all:
            await store.redis.delete(*(place.keys.admin_token(each.token_id) for each in (broken, token)))
        await store.redis.delete(shard.keys.admin_tokens())
        await store.redis.set(store.keys.admin_token(broken.token_id), "x")
        await store.redis.hset(store.keys.admin_token(token.token_id), "name", "site")
        await store.redis.zadd(store.keys.admin_tokens(), {b"\xff": 0})
        await store.redis.zadd(store.keys.admin_sessions(), {"endless": float("inf")})
        await store.copy_access([shard])
        assert await store.redis.hgetall(shard.keys.admin_token(token.token_id)) == {b"name": b"site"}
        assert not await store.redis.exists(shard.keys.admin_token(broken.token_id))
        await store.redis.delete(store.keys.admin_tokens())
        await store.redis.set(store.keys.admin_tokens(), "x")
        await store.deny_list.add(b"-XX", "a reason")
        await store.copy_access([shard])
        assert await store.redis.hgetall(shard.keys.denied_clients()) == {b"-XX": b"a reason"}


async def test_the_number_of_tokens_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS", 2)
    await store.tokens.create("1", "read")
    await store.tokens.create("2", "read")
    with pytest.raises(Conflict, match="too many"):
        await store.tokens.create("3", "read")


async def test_the_last_use_is_recorded_once_a_minute(store: Store) -> None:
    _, text = await store.tokens.create("site", "admin")
    start = int(store.clock.now)
    for seconds, noted in ((0, start), (59, start), (60, start + 60), (100, start + 60)):
        store.clock.now = start + seconds
        assert await store.tokens.verify(text)
        assert [token.last_used for token in await store.tokens.list()] == [noted]


async def test_a_use_does_not_restore_a_revoked_token(store: Store) -> None:
    token, _ = await store.tokens.create("site", "admin")
    await store.tokens.revoke("site")
    await store.tokens._record_use(token.token_id, 0)  # as by a request that was verified just before
    assert await store.tokens.list() == []
    assert not await store.tokens.any()


async def test_a_session_ends_with_its_time_and_with_its_token(store: Store) -> None:
    token, text = await store.tokens.create("site", "read")
    signed_in = await store.tokens.sign_in_by_token(text, 600)
    assert signed_in is not None
    session, secret = signed_in
    assert (session.name, session.role, session.token_id) == ("site", "read", token.token_id)
    assert await store.tokens.session(secret) == session
    store.clock.now += 599
    assert await store.tokens.session(secret) == session
    store.clock.now += 1
    assert await store.tokens.session(secret) is None
    again = await store.tokens.sign_in_by_token(text, 600)
    assert again is not None and await store.tokens.session(again[1])
    await store.tokens.revoke("site")
    assert await store.tokens.session(again[1]) is None
    assert await store.tokens.sign_in_by_token(text, 600) is None


async def test_using_a_session_is_using_its_token(store: Store) -> None:
    _, text = await store.tokens.create("site", "read")
    signed_in = await store.tokens.sign_in_by_token(text, 6000)
    assert signed_in is not None
    store.clock.now += 1000
    await store.tokens.session(signed_in[1])
    assert [token.last_used for token in await store.tokens.list()] == [int(store.clock.now)]


async def test_sessions_are_stored_as_hashes_and_are_never_alike(store: Store) -> None:
    first, second = await link(store), await link(store)
    assert first is not None and second is not None
    assert first[1] != second[1] and first[0].csrf != second[0].csrf
    kept = b"".join(await dump(store))
    assert first[1].encode() not in kept and second[1].encode() not in kept
    for wrong in ("", "*", first[1][:-1], first[1] + "a", "a" * 43):
        assert await store.tokens.session(wrong) is None


async def test_signing_out_ends_a_session_and_no_other(store: Store) -> None:
    first, second = await link(store), await link(store)
    assert first is not None and second is not None
    await store.tokens.sign_out(first[1])
    await store.tokens.sign_out("unknown")
    assert await store.tokens.session(first[1]) is None
    assert await store.tokens.session(second[1]) == second[0]
    assert await store.tokens.end_all_sessions() == 1
    assert await store.tokens.session(second[1]) is None
    assert await store.tokens.end_all_sessions() == 0


async def test_a_link_signs_in_once_with_full_access(store: Store) -> None:
    secret = await store.tokens.new_link()
    assert secret.encode() not in b"".join(await dump(store))
    signed_in = await store.tokens.sign_in_by_link(secret, 3600)
    assert signed_in is not None
    assert (signed_in[0].name, signed_in[0].role, signed_in[0].token_id) == (LINK_NAME, "admin", "")
    assert await store.tokens.session(signed_in[1]) == signed_in[0]
    assert await store.tokens.sign_in_by_link(secret, 3600) is None
    for wrong in ("", "a" * 43, "*", secret[:-1]):
        assert await store.tokens.sign_in_by_link(wrong, 3600) is None


async def test_one_of_many_concurrent_uses_of_a_link_succeeds(store: Store) -> None:
    secret = await store.tokens.new_link()
    found = await asyncio.gather(*(store.tokens.sign_in_by_link(secret, 3600) for _ in range(20)))
    assert sum(each is not None for each in found) == 1


async def test_a_link_expires_after_fifteen_minutes(store: Store) -> None:
    in_time, late = await store.tokens.new_link(), await store.tokens.new_link()
    assert LINK_SECONDS == 900
    store.clock.now += 899
    assert await store.tokens.sign_in_by_link(in_time, 3600)
    store.clock.now += 1
    assert await store.tokens.sign_in_by_link(late, 3600) is None


async def test_expired_entries_leave_the_store(store: Store) -> None:
    await store.tokens.new_link()
    signed_in = await link(store)
    assert signed_in is not None
    ttls = {
        key.decode().removeprefix(f"{store.keys.prefix}admin:").split(":")[0]: await store.redis.ttl(key)
        async for key in store.redis.scan_iter(f"{store.keys.prefix}admin:*")
    }
    assert 0 < ttls["link"] <= LINK_SECONDS
    assert 0 < ttls["session"] <= 3600
    store.clock.now += 3600
    await link(store)
    assert await store.redis.zcard(store.keys.admin_sessions()) == 1


async def test_beyond_the_maximum_the_session_that_expires_first_is_closed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_SESSIONS", 3)
    opened = []
    for _ in range(5):
        store.clock.now += 1
        opened.append(await link(store))
    alive = [signed_in is not None and await store.tokens.session(signed_in[1]) for signed_in in opened]
    assert [bool(session) for session in alive] == [False, False, True, True, True]


async def test_repeated_sign_ins_close_no_session_of_another_token(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_SESSIONS", 3)
    _, text = await store.tokens.create("site", "read")
    first = await link(store)
    opened = [await store.tokens.sign_in_by_token(text, 3600 + number) for number in range(5)]
    alive = [signed_in is not None and await store.tokens.session(signed_in[1]) for signed_in in (first, *opened)]
    assert [bool(session) for session in alive] == [True, False, False, False, True, True]


async def test_an_invalid_stored_role_grants_minimum_access(store: Store) -> None:
    token, text = await store.tokens.create("site", "admin")
    for role in ("everything", "", "ADMIN", b"\xff"):
        await store.redis.hset(store.keys.admin_token(token.token_id), "role", role)
        found = await store.tokens.verify(text)
        assert isinstance(found, Token) and found.role == "read"


async def test_a_token_and_its_sessions_expire(store: Store) -> None:
    start = int(store.clock.now)
    token, text = await store.tokens.create("site", "operate", expires=start + 60)
    signed_in = await store.tokens.sign_in_by_token(text, 600)
    assert signed_in is not None and signed_in[0].ends == start + 60
    assert token.expires == start + 60
    store.clock.now = start + 59
    assert await store.tokens.verify(text) and await store.tokens.session(signed_in[1])
    store.clock.now = start + 60
    assert await store.tokens.verify(text) is None
    assert await store.tokens.session(signed_in[1]) is None
    assert await store.tokens.sign_in_by_token(text, 600) is None
    assert [each.expires for each in await store.tokens.list()] == [start + 60]
    for wrong in (start, start + 60, 2**53):
        with pytest.raises(ClientError, match="future"):
            await store.tokens.create("other", "read", expires=wrong)


async def test_a_token_and_its_sessions_are_valid_for_its_addresses(store: Store) -> None:
    addresses = ["192.0.2.0/24", "2001:db8::7", "192.0.2.99/24"]
    token, text = await store.tokens.create("site", "operate", addresses=addresses)
    assert token.addresses == ("192.0.2.0/24", "2001:db8::7/128")
    inside, outside = packed("192.0.2.255"), packed("192.0.3.0")
    signed_in = await store.tokens.sign_in_by_token(text, 600, inside)
    assert signed_in is not None
    for address, admitted in (
        (inside, True),
        (packed("2001:db8::7"), True),
        (outside, False),
        (packed("2001:db8::8"), False),
        (Address(b""), False),
    ):
        assert bool(await store.tokens.verify(text, address)) == admitted
        assert bool(await store.tokens.session(signed_in[1], address)) == admitted
    assert await store.tokens.sign_in_by_token(text, 600, outside) is None
    for wrong in (["x"], [""], ["192.0.2.0/33"], ["192.0.2.0"] * 33):
        with pytest.raises(ClientError, match="address"):
            await store.tokens.create("other", "read", addresses=wrong)


@pytest.mark.parametrize(("field", "value"), [("expires", "soon"), ("expires", ""), ("addresses", "anywhere")])
async def test_an_invalid_stored_limit_admits_no_address(store: Store, field: str, value: str) -> None:
    token, text = await store.tokens.create("site", "admin")
    await store.redis.hset(store.keys.admin_token(token.token_id), field, value)
    assert await store.tokens.verify(text, packed("192.0.2.1")) is None


def test_each_role_includes_those_before_it() -> None:
    assert [[may(role, needed) for needed in ROLES] for role in ROLES] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def packed(text: str) -> Address:
    return Address(ip_address(text).packed)


@pytest.mark.parametrize("secret", ["", "x", "\udcff" * 43, "é" * 43])
async def test_an_invalid_session_is_signed_out_without_an_error(store: Store, secret: str) -> None:
    await store.tokens.sign_out(secret)
