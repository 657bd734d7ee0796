"""Copies of the private store, put back into fresh directories where trackers go on."""

import json
import shutil
import stat
from pathlib import Path

import pytest

from tests import trackers
from tests.trackers import RunningTracker

# A story told by a dozen processes, one after the other.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

HASH = "01" * 20


def run(directory: Path, *words: str, code: int = 0, **settings: str) -> str:
    done = trackers.run(directory, *words, **settings)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy taken beside a running tracker with a torrent, a peer, a denial and a user; later changes are not in it."""
    directory = tmp_path_factory.mktemp("running")
    tracker = trackers.start(directory)
    try:
        tracker.announce()
        run(directory, "torrent", "add", "ab" * 20, "--name", "kept")
        run(directory, "deny", "cd" * 20, "--reason", "kept, too")
        run(directory, "user", "add", "--id", "7")
        told = json.loads(run(directory, "backup", "copy.rdb", "--json"))
        file = directory / "copy.rdb"
        assert told == {"file": "copy.rdb", "bytes": file.stat().st_size}
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
    """Everything of the moment of the copy is there, and takes changes."""
    shown = json.loads(run(directory, "torrent", "show", "ab" * 20, "--json"))
    assert (shown["name"], shown["state"]) == ("kept", "registered")
    assert json.loads(run(directory, "torrent", "show", HASH, "--json"))["seeders"] == 1
    assert tracker.announce(info_hash="%cd" * 20)[b"failure reason"] == b"kept, too"
    assert json.loads(run(directory, "user", "list", "--json"))["user_id"] == "7"
    run(directory, "torrent", "add", "ef" * 20, "--name", "new")


def test_a_copy_is_restored_and_a_tracker_goes_on_there(copy: Path, tmp_path: Path) -> None:
    told = json.loads(run(tmp_path, "restore", str(copy), "--json"))
    assert told["keys"] > 10 and told["before"] is None
    tracker = trackers.start(tmp_path)
    try:
        check_goes_on(tracker, tmp_path)
    finally:
        assert tracker.end() == 0
    listed = run(tmp_path, "torrent", "list")  # a store that has been started once more
    assert "kept" in listed and "new" in listed
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def test_a_restore_that_was_cut_off_is_finished_by_the_next_start(copy: Path, tmp_path: Path) -> None:
    """Killed when the old data had been put aside, and the new was not there yet."""
    run(tmp_path, "torrent", "add", "ef" * 20, "--name", "older")
    run(tmp_path, "restore", str(copy), "--replace")
    data = tmp_path / "data"
    (data / "appendonlydir").rename(data / "appendonlydir.new")
    assert "kept" in run(tmp_path, "torrent", "list")
    # And one that had not come so far is as if it had never been.
    shutil.copytree(data / "appendonlydir", data / "appendonlydir.new")
    assert "kept" in run(tmp_path, "torrent", "list")
    assert not (data / "appendonlydir.new").exists()


def test_data_that_is_there_is_put_aside_only_when_told(copy: Path, tmp_path: Path) -> None:
    run(tmp_path, "torrent", "add", "ef" * 20, "--name", "older")
    assert "holds a store already" in run(tmp_path, "restore", str(copy), code=1)
    assert "older" in run(tmp_path, "torrent", "list")
    before = Path(json.loads(run(tmp_path, "restore", str(copy), "--replace", "--json"))["before"])
    assert "kept" in run(tmp_path, "torrent", "list")
    shutil.rmtree(tmp_path / "data" / "appendonlydir")
    before.rename(tmp_path / "data" / "appendonlydir")
    assert "older" in run(tmp_path, "torrent", "list")


def test_a_damaged_copy_is_refused_and_nothing_changes(copy: Path, tmp_path: Path) -> None:
    whole = copy.read_bytes()
    middle = len(whole) // 2
    run(tmp_path, "torrent", "add", "ef" * 20, "--name", "older")
    for damaged in (
        whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        whole[:middle],
        b"",
        b"info_hash,name\n",
        b"VALKEY999" + whole[9:],  # of a version to come
    ):
        (tmp_path / "damaged.rdb").write_bytes(damaged)
        told = run(tmp_path, "restore", "damaged.rdb", "--replace", code=1)
        assert told.startswith("error: damaged.rdb is ") and len(told.splitlines()) == 1
    assert "older" in run(tmp_path, "torrent", "list")


def test_a_store_that_nobody_runs_is_copied_into_a_folder(tmp_path: Path) -> None:
    assert "no tracker has run on" in run(tmp_path, "backup", "copy.rdb", code=1)
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


def test_a_server_of_its_own_is_copied_with_its_own_tools(tmp_path: Path) -> None:
    for words in (("backup", "x.rdb"), ("restore", "x.rdb")):
        told = run(tmp_path, *words, code=1, TRACKER_REDIS__URL="redis://127.0.0.1:1/0")
        assert "--rdb" in told and "tracker export --what all" in told
    assert not list(tmp_path.iterdir())
