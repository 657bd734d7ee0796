"""What the volunteer's program does in real clients: add under a label, list, stop, remove. No peer is needed: the data
is there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

import libtorrent as lt
import transmission_rpc

from tests.e2e.peers import PAYLOAD, Share
from tests.volunteer.programs import LABEL, PASSWORD, PROGRAMS, USER, Program, program
from tests.waiting import until
from tracker.cli.commands.work.seed import open_client
from tracker.volunteer.clients import ClientUnavailable, NewTorrent, NotAdded, TorrentClient

pytestmark = pytest.mark.slow
ANNOUNCE = "http://127.0.0.1:9/0123456789abcdef0123456789abcdef/announce"
SIZE = 200_000


@pytest.fixture(params=PROGRAMS)
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Program]:
    with program(request.param, tmp_path / "client") as started:
        yield started


@pytest.fixture
def client(running: Program) -> Iterator[TorrentClient]:
    opened = running.open(LABEL)
    yield opened
    opened.close()


def share_of(path: Path) -> tuple[Share, NewTorrent]:
    share = Share.make(path, size=SIZE)
    data = share.torrent(ANNOUNCE).read_bytes()
    return share, NewTorrent(share.info_hash.hex(), "payload", ANNOUNCE, data)


def is_seeding(client: TorrentClient, info_hash: str) -> bool:
    return any(each.info_hash == info_hash and each.seeding for each in client.torrents({}))


@pytest.mark.parametrize("delete_data", [False, True])
def test_a_torrent_is_added_checked_seeded_and_removed(
    running: Program, client: TorrentClient, tmp_path: Path, delete_data: bool
) -> None:
    share, new = share_of(tmp_path / "source")
    copy = running.folder / PAYLOAD
    copy.write_bytes(share.content)
    assert (client.torrents({}), client.has(new.info_hash)) == ([], False)
    client.add(new)
    assert client.has(new.info_hash)
    until(lambda: is_seeding(client, new.info_hash))
    client.add(new)  # again: no change
    [listed] = client.torrents({})
    assert (listed.info_hash, listed.size, listed.missing_bytes) == (new.info_hash, SIZE, 0)
    client.stop(new.info_hash)
    until(lambda: not is_seeding(client, new.info_hash) or running.name == "internal")
    client.remove(new.info_hash, delete_data=delete_data)
    until(lambda: not client.has(new.info_hash))
    assert client.torrents({}) == []
    until(lambda: copy.exists() != delete_data)


def test_a_torrent_without_the_label_is_not_ours(running: Program, client: TorrentClient, tmp_path: Path) -> None:
    """W27. Another label stands for a person."""
    if running.name == "internal":
        pytest.skip("all torrents of this client are the program's own")
    _, new = share_of(tmp_path / "source")
    person = running.open("mine")
    person.add(NewTorrent(new.info_hash, new.name, "http://127.0.0.1:9/announce", b""))
    assert client.has(new.info_hash)
    assert client.torrents({new.info_hash: ANNOUNCE}) == []
    client.add(new)
    assert client.torrents({new.info_hash: ANNOUNCE}) == []
    assert [each.info_hash for each in person.torrents({})] == [new.info_hash]
    person.close()


def test_a_magnet_link_waits_for_its_size(client: TorrentClient) -> None:
    client.add(NewTorrent("ab" * 20, "a name", ANNOUNCE))
    [listed] = client.torrents({})
    assert (listed.info_hash, listed.size, listed.seeding) == ("ab" * 20, 0, False)


def test_something_else_than_a_torrent_is_not_added(client: TorrentClient) -> None:
    with pytest.raises(NotAdded):
        client.add(NewTorrent("ab" * 20, "a name", ANNOUNCE, b"d4:infodee"))
    assert client.torrents({}) == []


def test_free_space_is_that_of_the_disk(running: Program, client: TorrentClient) -> None:
    """qBittorrent says 0 until it has looked."""
    disk = os.statvfs(running.folder)
    until(lambda: abs((client.free_bytes() or 0) - disk.f_bavail * disk.f_frsize) < 2**34, poll_seconds=0.2)


@pytest.mark.long
def test_an_addition_to_transmission_that_was_interrupted_is_completed(tmp_path: Path) -> None:
    """W27: it was added, and not labelled yet."""
    share, new = share_of(tmp_path / "source")
    with program("transmission", tmp_path / "client") as started:
        (started.folder / PAYLOAD).write_bytes(share.content)
        client = started.open(LABEL)
        port = int(started.url.rpartition(":")[2])
        raw = transmission_rpc.Client(host="127.0.0.1", port=port, username=USER, password=PASSWORD)
        raw.add_torrent(new.metainfo, paused=True)
        assert client.torrents({new.info_hash: ANNOUNCE}) == []
        client.add(new)
        until(lambda: is_seeding(client, new.info_hash))


def test_libtorrent_goes_on_with_its_torrents_without_checking_them_again(tmp_path: Path) -> None:
    share, new = share_of(tmp_path / "source")
    with program("internal", tmp_path / "client") as started:
        (started.folder / PAYLOAD).write_bytes(share.content)
        client = started.open(LABEL)
        client.add(new)
        until(lambda: is_seeding(client, new.info_hash))
        client.close()
        (started.folder / ".swarmkeeper" / f"{'cd' * 20}.resume").write_bytes(b"damaged")
        again = started.open(LABEL)
        until(lambda: is_seeding(again, new.info_hash))
        assert len(again.torrents({})) == 1
        again.close()


def test_libtorrent_checks_what_it_downloaded_before_it_was_killed(tmp_path: Path) -> None:
    """Its record is older than the data."""
    share, new = share_of(tmp_path / "source")
    params = lt.load_torrent_buffer(new.metainfo)
    params.have_pieces = [True, False, False, False]
    with program("internal", tmp_path / "client") as started:
        (started.folder / PAYLOAD).write_bytes(share.content)
        (started.folder / ".swarmkeeper").mkdir()
        record = started.folder / ".swarmkeeper" / f"{new.info_hash}.resume"
        record.write_bytes(lt.write_resume_data_buf(params))
        client = started.open(LABEL)
        until(lambda: is_seeding(client, new.info_hash))
        client.close()


@pytest.mark.parametrize(
    "url", ["qbittorrent://admin@127.0.0.1:{}", "transmission://127.0.0.1:{}", "qbittorrent+https://[::1]:{}"]
)
def test_a_client_that_is_not_there_is_reported_without_secrets(url: str) -> None:
    """A closed port."""
    client = open_client(url.format(9), "secret words", label=LABEL, folder="")
    with pytest.raises(ClientUnavailable, match="is not available") as caught:
        client.torrents({})
    assert "secret" not in str(caught.value)


@pytest.mark.long
@pytest.mark.parametrize("name", ["qbittorrent", "transmission"])
def test_a_wrong_password_is_reported(name: str, tmp_path: Path) -> None:
    with program(name, tmp_path / "client") as started:
        with pytest.raises(ClientUnavailable, match="refuses the user name or the password"):
            started.open(LABEL, "wrong").torrents({})
