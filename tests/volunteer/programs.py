"""BitTorrent clients as volunteers run them, on loopback: qBittorrent, Transmission, and libtorrent in this process.

DHT, local discovery and peer exchange are off, so that peers find each other through the tracker only.
"""

import base64
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from loadtest.servers import free_port
from tests.e2e.peers import settings as peer_settings
from tests.e2e.processes import running
from tests.waiting import until
from tracker.volunteer.clients import ClientUnavailable, TorrentClient
from tracker.volunteer.clients.internal import Internal
from tracker.volunteer.clients.qbittorrent import QBittorrent
from tracker.volunteer.clients.transmission import Transmission

USER, PASSWORD = "admin", "secret words"
LABEL = "swarmkeeper"
NAMES = {"internal": "", "qbittorrent": "qbittorrent-nox", "transmission": "transmission-daemon"}
PROGRAMS = [
    "internal",
    pytest.param("qbittorrent", marks=pytest.mark.long),
    pytest.param("transmission", marks=pytest.mark.long),
]
"""Transmission and qBittorrent take seconds to start, to list a torrent, and to stop."""


@dataclass(frozen=True)
class Program:
    """A running client. ``url`` is what ``--client`` takes, ``folder`` where it stores data."""

    name: str
    url: str
    folder: Path
    open: Callable[..., TorrentClient]
    """Opens a connection to it that uses this label, and this password."""


@contextmanager
def program(name: str, directory: Path) -> Iterator[Program]:
    """Runs a client until the block ends. Skips the test where it is not installed."""
    if NAMES[name] and not shutil.which(NAMES[name]):
        pytest.skip(f"no {NAMES[name]} on this system")
    directory.mkdir(exist_ok=True)
    folder = directory / "data"
    folder.mkdir(exist_ok=True)
    with ExitStack() as stack:
        yield _STARTERS[name](directory, folder, stack)


def _internal(directory: Path, folder: Path, stack: ExitStack) -> Program:
    del directory, stack

    def open_it(label: str) -> TorrentClient:
        del label
        return Internal(folder, settings=peer_settings(("127.0.0.1:0",)))

    return Program("internal", f"internal:{folder}", folder, open_it)


def _qbittorrent(directory: Path, folder: Path, stack: ExitStack) -> Program:
    port = free_port()
    salt = b"0123456789abcdef"
    key = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, 100_000, 64)
    hashed = f"{base64.b64encode(salt).decode()}:{base64.b64encode(key).decode()}"
    config = directory / "qBittorrent" / "config" / "qBittorrent.conf"
    config.parent.mkdir(parents=True, exist_ok=True)
    off = ("DHTEnabled", "LSDEnabled", "PeXEnabled", "SSRFMitigation", "QueueingSystemEnabled")
    config.write_text(
        "\n".join(
            [
                "[LegalNotice]",
                "Accepted=true",
                "[BitTorrent]",
                *(f"Session\\{each}=false" for each in off),
                f"Session\\DefaultSavePath={folder}",
                "Session\\InterfaceAddress=127.0.0.1",
                "Session\\MultiConnectionsPerIp=true",
                f"Session\\Port={free_port()}",
                "[Network]",
                "PortForwardingEnabled=false",
                "[Preferences]",
                "WebUI\\Address=127.0.0.1",
                "WebUI\\LocalHostAuth=true",
                f'WebUI\\Password_PBKDF2="@ByteArray({hashed})"',
                f"WebUI\\Port={port}",
                f"WebUI\\Username={USER}",
            ]
        )
    )
    command = ["qbittorrent-nox", f"--profile={directory}", f"--webui-port={port}"]
    stack.enter_context(running(command, directory / "output"))
    url = f"http://127.0.0.1:{port}"

    def open_it(label: str, password: str = PASSWORD) -> TorrentClient:
        return QBittorrent(url, USER, password, label=label)

    _await(open_it)
    return Program("qbittorrent", f"qbittorrent://{USER}@127.0.0.1:{port}", folder, open_it)


def _transmission(directory: Path, folder: Path, stack: ExitStack) -> Program:
    port = free_port()
    off = ("dht-enabled", "lpd-enabled", "pex-enabled", "port-forwarding-enabled", "utp-enabled")
    settings = {
        **dict.fromkeys(off, False),
        "bind-address-ipv4": "127.0.0.1",
        "bind-address-ipv6": "::1",
        "download-dir": str(folder),
        "peer-port": free_port(),
        "rpc-authentication-required": True,
        "rpc-bind-address": "127.0.0.1",
        "rpc-username": USER,
        "rpc-password": PASSWORD,
        "rpc-port": port,
    }
    (directory / "settings.json").write_text(json.dumps(settings))
    command = ["transmission-daemon", "--foreground", "--config-dir", str(directory)]
    stack.enter_context(running(command, directory / "output"))
    url = f"http://127.0.0.1:{port}"

    def open_it(label: str, password: str = PASSWORD) -> TorrentClient:
        return Transmission(url, USER, password, label=label)

    _await(open_it)
    return Program("transmission", f"transmission://{USER}@127.0.0.1:{port}", folder, open_it)


_STARTERS = {"internal": _internal, "qbittorrent": _qbittorrent, "transmission": _transmission}


def _await(open_it: Callable[[str], TorrentClient]) -> None:
    def answers() -> bool:
        client = open_it(LABEL)
        try:
            client.torrents({})
            client.close()
        except ClientUnavailable:
            return False
        return True

    until(answers, poll_seconds=0.2)
