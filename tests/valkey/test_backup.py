"""Backups of the private store, restored into new directories."""

import json
import shutil
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loadtest import trackers
from loadtest.trackers import RunningTracker
from tests import commands
from tests.store.harness import START
from tracker.store.access.tokens import Tokens
from tracker.store.client.connection import Connection, connect
from tracker.store.sharding.shards import Shards
from tracker.valkey.backup import copy_store
from tracker.valkey.server import EmbeddedValkey

# Each test runs a dozen processes, one after the other.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

HASH = "01" * 20


def run(directory: Path, *words: str, code: int = 0, **settings: str) -> str:
    done = commands.run(directory, *words, **settings)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of a running tracker with a torrent, a peer, a denial and a user; later changes are not in it."""
    directory = tmp_path_factory.mktemp("running")
    tracker = trackers.start(directory)
    try:
        tracker.announce()
        run(directory, "torrent", "add", "ab" * 20, "--name", "kept")
        run(directory, "deny", "cd" * 20, "--reason", "kept, too")
        run(directory, "user", "add", "--id", "7")
        shown = json.loads(run(directory, "backup", "copy.rdb", "--json"))
        file = directory / "copy.rdb"
        assert shown == {"file": "copy.rdb", "bytes": file.stat().st_size}
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert sorted(path.name for path in directory.iterdir()) == ["copy.rdb", "data", "log"]
        assert not list((directory / "data").glob("*.rdb"))
        run(directory, "torrent", "remove", "ab" * 20)
        assert tracker.announce()[b"complete"] == 1
        assert "in use by another tracker" in run(directory, "restore", "copy.rdb", code=1)
    finally:
        tracker.end()
    return file


def check_goes_on(tracker: RunningTracker, directory: Path) -> None:
    """All data of the backup is there and can be changed."""
    shown = json.loads(run(directory, "torrent", "show", "ab" * 20, "--json"))
    assert (shown["name"], shown["state"]) == ("kept", "registered")
    assert json.loads(run(directory, "torrent", "show", HASH, "--json"))["seeders"] == 1
    assert tracker.announce(info_hash="%cd" * 20)[b"failure reason"] == b"kept, too"
    assert json.loads(run(directory, "user", "list", "--json"))["user_id"] == "7"
    run(directory, "torrent", "add", "ef" * 20, "--name", "new")


def test_a_tracker_continues_from_a_restored_backup(copy: Path, tmp_path: Path) -> None:
    shown = json.loads(run(tmp_path, "restore", str(copy), "--json"))
    assert shown["keys"] > 10 and shown["before"] is None
    tracker = trackers.start(tmp_path)
    try:
        check_goes_on(tracker, tmp_path)
    finally:
        assert tracker.end() == 0
    listed = run(tmp_path, "torrent", "list")  # restarts the store
    assert "kept" in listed and "new" in listed
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


async def test_a_restore_ends_all_sessions_and_keeps_the_tokens_of_the_backup(tmp_path: Path) -> None:
    """A session that ended since the backup must not become valid again. Tokens are those of the backup."""
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()
    async with EmbeddedValkey(first / "data") as server:
        async with connected(server) as (connection, tokens):
            _, text = await tokens.create("kept", "admin")
            signed_in = await tokens.sign_in_by_token(text, 3600)
            assert signed_in and await tokens.session(signed_in[1])
            await copy_store(connection, first / "data", tmp_path / "copy.rdb")
            await tokens.sign_out(signed_in[1])
            await tokens.revoke("kept")
    done = trackers.run(second, "restore", str(tmp_path / "copy.rdb"), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["sessions_ended"] == 1
    assert "Tokens, passkeys and users are those of the backup" in done.stderr
    assert "All browsers are signed out" in done.stderr
    assert sorted(path.name for path in (second / "data").iterdir()) == ["appendonlydir", "server.lock", "tracker.lock"]
    async with EmbeddedValkey(second / "data") as server, connected(server) as (_, tokens):
        assert await tokens.session(signed_in[1]) is None
        assert await tokens.verify(text)


@asynccontextmanager
async def connected(server: EmbeddedValkey) -> AsyncIterator[tuple[Connection, Tokens]]:
    connection = Connection(connect(server.url, connect_timeout=5, timeout=10))
    try:
        yield connection, Tokens(Shards.under(connection, "t:", 1), lambda: START)
    finally:
        await connection.close()


@pytest.mark.long
def test_the_next_start_finishes_an_interrupted_restore(copy: Path, tmp_path: Path) -> None:
    """Killed after moving the old data aside, before placing the new data."""
    run(tmp_path, "torrent", "add", "ef" * 20, "--name", "older")
    run(tmp_path, "restore", str(copy), "--replace")
    data = tmp_path / "data"
    (data / "appendonlydir").rename(data / "appendonlydir.new")
    assert "kept" in run(tmp_path, "torrent", "list")
    # A restore that was interrupted earlier has no effect.
    shutil.copytree(data / "appendonlydir", data / "appendonlydir.new")
    assert "kept" in run(tmp_path, "torrent", "list")
    assert not (data / "appendonlydir.new").exists()
    shutil.copytree(data / "appendonlydir", data / "restore.tmp" / "appendonlydir")
    assert "kept" in run(tmp_path, "torrent", "list")
    assert not (data / "restore.tmp").exists()


@pytest.mark.long
def test_existing_data_is_moved_aside_only_on_request(copy: Path, tmp_path: Path) -> None:
    run(tmp_path, "torrent", "add", "ef" * 20, "--name", "older")
    assert "already holds a store" in run(tmp_path, "restore", str(copy), code=1)
    assert "older" in run(tmp_path, "torrent", "list")
    before = Path(json.loads(run(tmp_path, "restore", str(copy), "--replace", "--json"))["before"])
    assert "kept" in run(tmp_path, "torrent", "list")
    shutil.rmtree(tmp_path / "data" / "appendonlydir")
    before.rename(tmp_path / "data" / "appendonlydir")
    assert "older" in run(tmp_path, "torrent", "list")


@pytest.mark.long
def test_a_damaged_backup_is_refused_and_changes_nothing(copy: Path, tmp_path: Path) -> None:
    whole = copy.read_bytes()
    middle = len(whole) // 2
    run(tmp_path, "torrent", "add", "ef" * 20, "--name", "older")
    for damaged in (
        whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        whole[:middle],
        b"",
        b"info_hash,name\n",
        b"VALKEY999" + whole[9:],  # a future version
    ):
        (tmp_path / "damaged.rdb").write_bytes(damaged)
        shown = run(tmp_path, "restore", "damaged.rdb", "--replace", code=1)
        assert shown.startswith("error: damaged.rdb is ") and len(shown.splitlines()) == 1
    assert "older" in run(tmp_path, "torrent", "list")


@pytest.mark.long
def test_a_stopped_store_is_backed_up_into_a_folder(tmp_path: Path) -> None:
    assert "no tracker has used" in run(tmp_path, "backup", "copy.rdb", code=1)
    run(tmp_path, "torrent", "add", "ab" * 20)
    (tmp_path / "copies").mkdir()
    run(tmp_path, "backup", "copies")
    run(tmp_path, "backup", "nightly/")
    assert stat.S_IMODE((tmp_path / "nightly").stat().st_mode) == 0o700
    assert [path.suffix for path in (tmp_path / "nightly").iterdir()] == [".rdb"]
    (file,) = (tmp_path / "copies").iterdir()
    assert file.name.startswith("swarmkeeper-2") and file.suffix == ".rdb"
    assert "error: " in run(tmp_path, "backup", "missing/copy.rdb", code=1)
    assert "choose another name" in run(tmp_path, "backup", "data/dump.rdb", code=1)
    assert not list((tmp_path / "data").glob("*.rdb"))


def test_an_external_server_is_backed_up_with_its_own_tools(tmp_path: Path) -> None:
    for words in (("backup", "x.rdb"), ("restore", "x.rdb")):
        shown = run(tmp_path, *words, code=1, TRACKER_REDIS__URL="redis://127.0.0.1:1/0")
        assert "--rdb" in shown and "tracker export --what all" in shown
    assert not list(tmp_path.iterdir())
