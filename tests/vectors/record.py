"""Record what real BitTorrent clients send: ``python tests/vectors/record.py`` rewrites recorded.json.

A throw-away HTTP listener on loopback plays the tracker. libtorrent seeds a small file; libtorrent,
transmission-cli and aria2c (those that are installed) fetch it, so each says started, completed and
stopped, and a scrape where it can. Whatever arrives is kept byte for byte: request line and headers,
as latin-1 text. Nothing leaves loopback, and every process started here is ended here.
"""

import datetime
import json
import re
import shutil
import signal
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import libtorrent as lt

OUTPUT = Path(__file__).with_name("recorded.json")
SIZE = 300_000
PATIENCE_SECONDS = 40


class Listener(socketserver.ThreadingTCPServer):
    """Answers every announce with the seeder as the only peer, and remembers every request head."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.heads: list[bytes] = []
        self.seeder_port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/announce"

    def answer(self, head: bytes) -> bytes:
        if b"/scrape" in head.split(b"\r\n", 1)[0]:
            info_hash = unquote_to_bytes(re.search(rb"info_hash=([^& ]*)", head)[1])  # type: ignore[index]
            files = b"d8:completei1e10:downloadedi0e10:incompletei0ee"
            return b"d5:filesd20:" + info_hash + files + b"ee"
        peers = bytes([127, 0, 0, 1]) + self.seeder_port.to_bytes(2, "big")
        return b"d8:intervali1800e5:peers6:" + peers + b"e"

    def saw(self, *words: bytes) -> bool:
        return any(all(word in head for word in words) for head in self.heads)


class Handler(socketserver.StreamRequestHandler):
    server: Listener

    def handle(self) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n") and (line := self.rfile.readline(65536)):
            head += line
        if not head:
            return
        self.server.heads.append(head)
        body = self.server.answer(head)
        lines = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"
        with suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(lines % len(body) + body)


def wait_for(condition: Callable[[], bool]) -> bool:
    """Poll until it holds; False when patience runs out (the recording then misses that request)."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def libtorrent_session() -> lt.session:
    settings: Any = dict.fromkeys(("enable_dht", "enable_lsd", "enable_upnp", "enable_natpmp"), False)
    settings["listen_interfaces"] = "127.0.0.1:0"
    settings["allow_multiple_connections_per_ip"] = True
    settings["stop_tracker_timeout"] = 5
    settings["ssrf_mitigation"] = False  # else it asks loopback for nothing but /announce and never scrapes
    return lt.session(settings)


def make_torrent(folder: Path, url: str, hybrid: bool) -> Path:
    """A small file's torrent; a hybrid one (BEP 52) is announced under both of its hashes."""
    (folder / "payload.bin").write_bytes(bytes(i * i % 251 for i in range(SIZE)))
    files = [lt.create_file_entry("payload.bin", SIZE)]
    flags = lt.create_torrent.canonical_files if hybrid else lt.create_torrent.v1_only
    creator = lt.create_torrent(files, piece_size=65536, flags=flags)
    creator.add_tracker(url)
    lt.set_piece_hashes(creator, str(folder))
    path = folder / "payload.torrent"
    path.write_bytes(lt.bencode(creator.generate()))
    return path


def add(session: lt.session, torrent: Path, folder: Path) -> lt.torrent_handle:
    parameters = lt.add_torrent_params()
    parameters.ti = lt.torrent_info(str(torrent))
    parameters.save_path = str(folder)
    return session.add_torrent(parameters)


def record_libtorrent(listener: Listener, torrent: Path, folder: Path) -> None:
    session = libtorrent_session()
    handle = add(session, torrent, folder)
    wait_for(lambda: listener.saw(b"event=completed"))
    handle.scrape_tracker()
    wait_for(lambda: listener.saw(b"GET /scrape"))
    session.remove_torrent(handle)
    wait_for(lambda: listener.saw(b"event=stopped"))
    del session


def record_program(command: list[str], listener: Listener) -> None:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
        wait_for(lambda: listener.saw(b"event=completed"))
        time.sleep(2)  # Transmission scrapes a moment after it announced.
        program.send_signal(signal.SIGINT)
        wait_for(lambda: listener.saw(b"event=stopped"))
        try:
            program.wait(10)
        except subprocess.TimeoutExpired:
            program.kill()


@contextmanager
def swarm(*, hybrid: bool = False) -> Iterator[tuple[Listener, Path, Path]]:
    """The listener, a torrent that names it with a seeder already there, and an empty folder to fetch into."""
    with tempfile.TemporaryDirectory() as name, Listener() as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        source, target = Path(name, "source"), Path(name, "target")
        source.mkdir()
        target.mkdir()
        torrent = make_torrent(source, listener.url, hybrid)
        session = libtorrent_session()
        handle = add(session, torrent, source)
        wait_for(lambda: handle.status().is_seeding and listener.saw(b"left=0&"))
        time.sleep(1)  # A hybrid torrent is announced twice.
        listener.seeder_port = session.listen_port()
        listener.heads.clear()
        yield listener, torrent, target
        del session
        listener.shutdown()


def version_of(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+(\.\d+)*", done.stdout + done.stderr)
    return found[0] if found else "unknown"


def record_all() -> list[dict[str, str]]:
    requests: list[dict[str, str]] = []

    def keep(client: str, version: str, listener: Listener) -> None:
        for head in dict.fromkeys(listener.heads):
            requests.append({"client": client, "version": version, "head": head.decode("latin-1")})

    with swarm(hybrid=True) as (listener, torrent, target):
        record_libtorrent(listener, torrent, target)
        keep("libtorrent", lt.__version__, listener)
    if shutil.which("transmission-cli"):
        with swarm() as (listener, torrent, target):
            command = ["transmission-cli", "-g", str(target / "config"), "-w", str(target), "-M", str(torrent)]
            record_program(command, listener)
            keep("Transmission", version_of(["transmission-cli", "--version"]), listener)
    if shutil.which("aria2c"):
        with swarm() as (listener, torrent, target):
            command = ["aria2c", "--no-conf", "--enable-dht=false", "--seed-time=10", "-d", str(target), str(torrent)]
            record_program(command, listener)
            keep("aria2", version_of(["aria2c", "--version"]), listener)
    return requests


if __name__ == "__main__":
    today = datetime.datetime.now(datetime.UTC).date()
    recording = {"date": today.isoformat(), "requests": record_all()}
    OUTPUT.write_text(json.dumps(recording, indent=1) + "\n")
    print(f"{len(recording['requests'])} requests in {OUTPUT.name}")  # noqa: T201 - this is a command
