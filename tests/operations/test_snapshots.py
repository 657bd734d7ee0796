"""The values of objects that the audit log shows."""

from typing import Any

import pytest

from tests.store.harness import Store, info_hash
from tracker.operations.snapshots import ALL_USERS, Kind, snapshot
from tracker.store.work.records import Project

HASH = info_hash(1).hex()


async def test_a_torrent_is_shown_as_admins_set_it(store: Store) -> None:
    assert await snapshot(store, "torrent", HASH) == (HASH, {})
    await store.torrents.add(info_hash(1), {"name": "a film", "multi_dn": "0 1900000000", "labels": "b a"})
    await store.torrents.deny(info_hash(1), "no")
    object_id, values = await snapshot(store, "torrent", HASH.upper())
    assert object_id == HASH
    assert dict(values) == {
        "registered": "true",
        "name": "a film",
        "enabled": "true",
        "private": "false",
        "labels": "b a",
        "upload_multiplier": "1",
        "download_multiplier": "0 1900000000",
        "denied": "no",
    }


async def test_a_user_is_named_by_id_also_where_the_passkey_was_given(store: Store) -> None:
    user = await store.users.add("7", name="Alice", uploaded=5)
    torrent_id, _ = await store.torrents.add(info_hash(1))
    await store.freeleech.give("7", torrent_id, 1_900_000_000)
    for who in ("7", user.passkey):
        object_id, values = await snapshot(store, "user", who)
        assert object_id == "7"
        assert (values["name"], values["uploaded"], values["hit_and_runs"]) == ("Alice", "5", "0")
        assert (values["freeleech"], values["passkey"]) == (f"{torrent_id}:1900000000", user.passkey)
    for unknown in ("8", "x" * 40):
        assert await snapshot(store, "user", unknown) == ("", {})


async def test_lists_projects_tokens_and_jobs(store: Store) -> None:
    await store.allow_list.add(b"-TR\0", "")
    await store.deny_list.add(b"-TR\0", "old")
    token, _ = await store.tokens.create("site", "operate", expires=1_900_000_000, addresses=["::1"])
    await store.work.projects.create(Project("proj", title="A title"))
    await store.work.blocks.block("192.0.2.1")
    await store.work.blocks.block("eve", "proj")
    job = await store.jobs.enqueue("sweep")
    await store.multipliers.set("2", "0 1900000000")
    token_values = {"name": "site", "role": "operate", "addresses": "::1/128", "expires": "1900000000"}
    expected: dict[tuple[Kind, str], tuple[str, dict[str, str]]] = {
        ("client", "-TR%00"): ("-TR%00", {"allowed": "yes", "denied": "old"}),
        ("client", "-qB"): ("-qB", {}),
        ("token", "site"): (token.token_id, token_values),
        ("token", token.token_id): (token.token_id, token_values),
        ("block", "/192.0.2.1"): ("/192.0.2.1", {"blocked": "true"}),
        ("block", "proj/eve"): ("proj/eve", {"blocked": "true"}),
        ("block", "/eve"): ("/eve", {}),
        ("job", job.id): (job.id, {"queue": "sweep", "status": "pending"}),
        ("job", "none"): ("none", {}),
        ("multipliers", ALL_USERS): (ALL_USERS, {"upload": "2", "download": "0 1900000000"}),
        ("project", "other"): ("other", {}),
        ("queue", "sweep"): ("sweep", {}),
    }
    for (kind, text), (object_id, values) in expected.items():
        found_id, found = await snapshot(store, kind, text)
        assert (found_id, dict(found)) == (object_id, values), (kind, text)
    assert (await snapshot(store, "project", "proj"))[1]["title"] == "A title"


@pytest.mark.parametrize("text", ["", "x", "é", "\udcff", "a" * 10_000, "../..", "*"])
@pytest.mark.parametrize("kind", ["torrent", "user", "client", "project", "block", "job", "token"])
async def test_no_text_is_an_error(store: Store, kind: Any, text: str) -> None:
    await snapshot(store, kind, text)
