"""A network without internet: a tracker with a node of the DHT, 20 nodes of libtorrent, seeders, Transmission, aria2.

``python -m tests.e2e.dht_network FOLDER [RECORDING]`` runs inside a network namespace that has the addresses of
``SET_UP``. Clients find the seeder of a public torrent only through the DHT. With RECORDING, what the clients sent to
the tracker's node is written there (tests/vectors/dht.json).
"""

import datetime
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libtorrent as lt
from bencodepy import decode as bdecode

from loadtest import trackers
from loadtest.servers import start_valkey
from tests import namespaces
from tests.e2e.conftest import addresses
from tests.e2e.packets import Packet, Recorder
from tests.e2e.peers import PAYLOAD, Peer, Share
from tests.e2e.processes import running
from tests.frontends.dht.islands import PORT, session
from tests.waiting import until
from tracker.bittorrent import InfoHash
from tracker.store.schema.keys import Keys
from tracker.wire.krpc import AnnouncePeer, Answer, GetPeers, NodeId, Query, encode_query, parse_message

SESSIONS, SIZE = 20, 600_000
OURS = "10.99.0.1", 6881
LIBTORRENT = tuple(f"10.99.0.{number}" for number in range(2, 2 + SESSIONS))
SEEDERS = "10.99.0.40", "10.99.0.41"
CLIENTS = {"libtorrent": LIBTORRENT[0], "Transmission": "10.99.0.50", "aria2": "10.99.0.51"}
CLIENT_PORT = 51413
OBSERVER = "10.99.0.60"
HIDDEN = "private.bin"
SET_UP = namespaces.set_up(*dict.fromkeys((OURS[0], *LIBTORRENT, *SEEDERS, *CLIENTS.values(), OBSERVER)))
SETTINGS = {
    "TRACKER_HTTP__LISTEN": f"{OURS[0]}:0",
    "TRACKER_TORRENTS__MODE": "registered",
    "TRACKER_DHT__ENABLED": "true",
    "TRACKER_DHT__LISTEN": f"{OURS[0]}:{OURS[1]}",
    "TRACKER_DHT__NAME": "host",
    "TRACKER_DHT__PRIVATE_ADDRESSES": "true",
}
FOUND_SECONDS = 150.0
"""Transmission searches when it knows more than eight nodes, four of them good, and then every half a minute."""
RECORDED_SECONDS = 60.0
SLACK_SECONDS = 1.0
"""A recorded time may be so much too late."""


@dataclass(frozen=True)
class Torrents:
    public: Share
    private: Share


def transmission(torrents: list[Path], target: Path, known: list[tuple[str, int]]) -> list[str]:
    """It connects to no loopback address, and reads its first nodes from a file."""
    (watched := target / "watched").mkdir(parents=True)
    for number, torrent in enumerate(torrents):
        (watched / f"{number}.torrent").write_bytes(torrent.read_bytes())
    off = ("lpd-enabled", "pex-enabled", "port-forwarding-enabled", "utp-enabled", "rpc-enabled")
    settings = {
        **dict.fromkeys(off, False),
        "dht-enabled": True,
        "bind-address-ipv4": CLIENTS["Transmission"],
        "download-dir": str(target),
        "peer-port": CLIENT_PORT,
        "watch-dir": str(watched),
        "watch-dir-enabled": True,
    }
    (target / "settings.json").write_text(json.dumps(settings))
    (target / "dht.bootstrap").write_text("".join(f"{host} {port}\n" for host, port in known))
    return ["transmission-daemon", "--foreground", "--config-dir", str(target)]


def aria2(torrents: list[Path], target: Path, known: list[tuple[str, int]]) -> list[str]:
    target.mkdir()
    (host, port), *_ = known
    words = ["--no-conf", "--enable-dht=true", "--enable-dht6=false", "--bt-enable-lpd=false"]
    words += ["--enable-peer-exchange=false", f"--interface={CLIENTS['aria2']}", "--seed-time=10"]
    words += [f"--dht-entry-point={host}:{port}", f"--dht-listen-port={CLIENT_PORT}"]
    words += [f"--dht-file-path={target}/dht.dat", f"--listen-port={CLIENT_PORT}", f"--dir={target}"]
    return ["aria2c", *words, *map(str, torrents)]


@dataclass(frozen=True)
class ServedTracker:
    announce_url: str
    directory: Path
    settings: dict[str, str]

    def find(self, info_hash: bytes) -> set[str]:
        """The hosts that ``tracker dht find`` shows."""
        done = trackers.run(self.directory, "dht", "find", info_hash.hex(), "--json", **self.settings)
        assert done.returncode == 0, done.stderr
        return {endpoint.rpartition(":")[0] for endpoint in json.loads(done.stdout)["endpoints"]}


@contextmanager
def tracker(folder: Path, torrents: Torrents) -> Iterator[ServedTracker]:
    """Runs a tracker whose node is the nearest one to the public torrent."""
    (directory := folder / "tracker").mkdir()
    (data := folder / "store").mkdir()
    store = start_valkey(data)
    settings = {**SETTINGS, "TRACKER_REDIS__URL": store.url}
    with ExitStack() as stack:
        stack.callback(store.stop)
        with store.client() as client:
            client.hset(Keys().dht_node("host"), "id4", near(torrents.public.info_hash).hex())
        for share in (torrents.public, torrents.private):
            done = trackers.run(directory, "torrent", "add", str(share.torrent()), **settings)
            assert done.returncode == 0, done.stderr
        served = trackers.start(directory, **settings)
        stack.callback(served.kill)
        yield ServedTracker(f"{addresses(served)[0]}/announce", directory, settings)
        assert served.end() == 0
        assert "Traceback" not in served.log and '"level": "error"' not in served.log, served.log


def near(info_hash: bytes) -> bytes:
    """The nearest node id to a torrent but one."""
    return info_hash[:-1] + bytes((info_hash[-1] ^ 1,))


def make_torrents(folder: Path) -> Torrents:
    public = Share.make(folder / "public", size=SIZE)
    private = Share.make(folder / "private", private=True, size=SIZE)
    private.info[b"info"][b"name"] = HIDDEN.encode()
    (private.folder / PAYLOAD).rename(private.folder / HIDDEN)
    return Torrents(public, private)


def main(folder: Path, recording: Path | None) -> None:
    names = [name for _, name in socket.if_nameindex()]
    assert names == ["lo"], f"not in a namespace of its own: {names}"
    torrents = make_torrents(folder)
    both = torrents.public, torrents.private
    with Recorder() as recorder, tracker(folder, torrents) as served, ExitStack() as stack:
        sessions = [session(f"{host}:{PORT}") for host in LIBTORRENT]
        stack.callback(sessions.clear)
        for number, each in enumerate(sessions):
            each.add_dht_node(OURS)
            each.add_dht_node((LIBTORRENT[number - 1], PORT))
        for share, host in zip(both, SEEDERS, strict=True):
            seeder = stack.enter_context(Peer(share.torrent(served.announce_url), share.folder, f"{host}:0"))
            seeder.until("tracker_reply")
        for share in both:
            download(sessions[0], share, folder / "libtorrent")
        known = [OURS, *((host, PORT) for host in LIBTORRENT)]
        for name, make in (("Transmission", transmission), ("aria2", aria2)):
            command = make([share.torrent() for share in both], folder / name, known)
            stack.enter_context(running(command, folder / f"{name}.log"))
        for name in CLIENTS:
            await_file(torrents.public, folder / name)
        wanted = {*CLIENTS.values(), SEEDERS[0]}
        until(lambda: wanted <= {host for host, _ in values(torrents.public.info_hash)}, FOUND_SECONDS, 2)
        assert wanted <= served.find(torrents.public.info_hash)
        check(recorder.packets, torrents)
        if recording:
            until(lambda: recorder.packets[-1].seconds > RECORDED_SECONDS, 2 * RECORDED_SECONDS, 1)
            recording.write_text(json.dumps(recorded(recorder.packets), indent=1) + "\n")
        assert not [name for name in CLIENTS if holds_data(folder / name / HIDDEN)]
    print("done")  # noqa: T201  # what the test reads


def download(session: Any, share: Share, folder: Path) -> None:
    parameters = lt.load_torrent_file(str(share.torrent()))
    parameters.save_path = str(folder)
    session.add_torrent(parameters)


def await_file(share: Share, folder: Path) -> None:
    copy = folder / PAYLOAD
    until(lambda: copy.exists() and copy.read_bytes() == share.content, FOUND_SECONDS, 0.2)


def holds_data(file: Path) -> bool:
    return file.exists() and any(file.read_bytes())


def values(info_hash: bytes) -> list[tuple[str, int]]:
    """Peers in an answer of our node."""
    with socket.socket(type=socket.SOCK_DGRAM) as observer:
        observer.bind((OBSERVER, 0))
        observer.settimeout(5)
        observer.connect(OURS)
        query = Query(b"ob", NodeId(b"o" * 20), GetPeers(InfoHash(info_hash)), read_only=True)
        observer.send(encode_query(query))
        answer = parse_message(observer.recv(2048))
    assert isinstance(answer, Answer)
    return [(socket.inet_ntoa(each[:4]), int.from_bytes(each[4:], "big")) for each in answer.values]


def check(packets: list[Packet], torrents: Torrents) -> None:
    sent = [each for each in packets if each.source == OURS]
    assert max(len(each.data) for each in sent) <= 1024
    hidden = torrents.private.info_hash
    assert not [each for each in packets if hidden in each.data], "no node names a private torrent"
    for name, host in CLIENTS.items():
        announces = [each for each in received(packets, host) if b"13:announce_peer" in each.data]
        assert announces, f"{name} announces nothing to our node"
        for each in announces:
            query = parse_message(each.data)
            assert isinstance(query, Query) and isinstance(query.arguments, AnnouncePeer)
            assert query.arguments.info_hash == torrents.public.info_hash
            assert is_answered(each, sent, b"r"), f"{name}: {each}"
        for each in received(packets, host):
            message = parse_message(each.data)
            assert not isinstance(message, Query) or is_answered(each, sent, b"re"), f"{name}: {each}"
    rate_is_kept(sent)


def received(packets: list[Packet], host: str) -> list[Packet]:
    """By our node, from a client, but for the last second."""
    last = packets[-1].seconds - SLACK_SECONDS
    return [each for each in packets if each.target == OURS and each.source[0] == host and each.seconds < last]


def is_answered(query: Packet, sent: list[Packet], kinds: bytes) -> bool:
    transaction = bdecode(query.data)[b"t"]
    return any(
        each.target == query.source
        and each.seconds >= query.seconds - SLACK_SECONDS
        and (answer := bdecode(each.data))[b"t"] == transaction
        and answer[b"y"] in kinds
        for each in sent
    )


def rate_is_kept(sent: list[Packet]) -> None:
    """Four queries to an address at once, then one a second."""
    times: dict[str, list[float]] = {}
    for each in sent:
        if each.data.endswith(b"1:y1:qe"):
            times.setdefault(each.target[0], []).append(each.seconds)
    assert times
    for host, seconds in times.items():
        for first, start in enumerate(seconds):
            for last in range(first, len(seconds)):
                assert last - first + 1 <= 4 + seconds[last] - start + SLACK_SECONDS, (host, seconds)


def recorded(packets: list[Packet]) -> Mapping[str, Any]:
    """The messages of each client to our node in its first minute."""
    versions = {
        "libtorrent": lt.version,
        "Transmission": version("transmission-daemon", "--version"),
        "aria2": version("aria2c", "--version"),
    }
    messages = []
    for name, host in CLIENTS.items():
        mine = received(packets, host)
        for each in mine:
            seconds = each.seconds - mine[0].seconds
            if seconds < RECORDED_SECONDS:
                messages.append({"client": name, "seconds": round(seconds, 3), "hex": each.data.hex()})
    return {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), "versions": versions, "messages": messages}


def version(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).splitlines()[0]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
