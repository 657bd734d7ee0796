"""UDP beside HTTP in whole trackers: which addresses, one swarm, several processes, restarts."""

import os
import re
import signal
import socket
from contextlib import closing
from typing import Any

import pytest
import structlog

from loadtest import trackers
from loadtest.servers import free_port
from loadtest.trackers import RunningTracker
from tests.app.conftest import StartTracker
from tests.app.test_web_processes import pids_of_web_processes
from tests.frontends.udp.harness import CONNECT, announce_packet, scrape_packet
from tests.waiting import until
from tracker.app.web import open_udp_sockets
from tracker.errors import StartupError
from tracker.settings.model import Settings
from tracker.system.datagrams import close_all

HASH = "".join(f"%{byte:02x}" for byte in range(1, 21))


class Client:
    """A blocking client; repeats nothing."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(trackers.SECONDS)
        self.socket.connect(address)

    def ask(self, packet: bytes) -> bytes:
        self.socket.send(packet)
        return self.socket.recv(4096)

    def connect(self) -> bytes:
        return self.ask(CONNECT)[8:]

    def close(self) -> None:
        self.socket.close()


def udp_address(tracker: RunningTracker) -> tuple[str, int]:
    found = re.search(r"udp://(127\.0\.0\.1):(\d+)/", tracker.banner)
    assert found, tracker.banner
    return found[1], int(found[2])


def test_auto_means_the_tcp_addresses() -> None:
    tcp = ["0.0.0.0:6969", "[::]:6969", "unix:/run/t"]
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, tcp[:2]),
        ({"users": {"private": "optional"}}, tcp[:2]),
        ({"users": {"private": "required"}}, []),
        ({"http": {"trusted_proxies": ["10.0.0.0/8"]}}, []),
    ]
    for sections, addresses in cases:
        assert Settings.model_validate(sections).udp_addresses(tcp) == tuple(addresses)


async def opened(tcp: list[str], **udp: Any) -> list[list[str]]:
    sockets = await open_udp_sockets(Settings.model_validate({"udp": udp}), tcp, 2)
    close_all(sockets)
    return [[each.address for each in mine] for mine in sockets]


async def test_a_taken_port_is_a_warning_with_auto_and_an_error_when_named() -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as other:
        other.bind(("127.0.0.1", 0))
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with structlog.testing.capture_logs() as logs:
            found = await opened([taken, "127.0.0.2:0"])
        assert [len(mine) for mine in found] == [1, 1] and found[0] == found[1]
        warnings = [line["why"] for line in logs if "why" in line]
        assert warnings == [f"cannot listen on {taken} (UDP): the address is in use by another process"]
        with pytest.raises(StartupError, match="in use"):
            await opened([], listen=[taken])


async def test_named_addresses_are_opened_whatever_auto_would_do() -> None:
    sections = {"udp": {"listen": "127.0.0.1:0"}, "users": {"private": "required"}}
    sockets = await open_udp_sockets(Settings.model_validate(sections), [], 1)
    close_all(sockets)
    assert [len(mine) for mine in sockets] == [1]
    assert await opened(["127.0.0.1:0"], listen="off") == [[], []]


async def test_a_smaller_buffer_than_wanted_is_one_line_with_its_remedy() -> None:
    wanted = 2**30
    with structlog.testing.capture_logs() as logs:
        await opened(["127.0.0.1:0", "127.0.0.2:0"], receive_buffer_bytes=str(wanted))
    (line,) = logs
    assert line["log_level"] == "info" and 0 < line["bytes"] < wanted
    assert line["for_many_peers"] == f"sysctl -w net.core.rmem_max={wanted}"


@pytest.mark.parametrize(
    ("sections", "tcp", "why"),
    [
        ({"users": {"private": "required"}}, "127.0.0.1:0", "passkeys are required"),
        ({"http": {"trusted_proxies": ["10.0.0.0/8"]}}, "127.0.0.1:0", "through a proxy"),
        ({}, "unix:/run/tracker", "through a unix socket"),
    ],
)
async def test_auto_without_udp_says_why_once(sections: dict[str, Any], tcp: str, why: str) -> None:
    with structlog.testing.capture_logs() as logs:
        assert await open_udp_sockets(Settings.model_validate(sections), [tcp], 1) == [[]]
        off = {**sections, "udp": {"listen": "off"}}
        assert await open_udp_sockets(Settings.model_validate(off), [tcp], 1) == [[]]
    (line,) = logs
    assert line["event"].startswith("UDP is off") and why in line["why"]


@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.long), "2"])
@pytest.mark.usefixtures("own_interpreter")
def test_http_and_udp_are_one_swarm(start_tracker: StartTracker, workers: str) -> None:
    """U1: the client of both protocols is one peer, although its key is written in two ways."""
    tracker = start_tracker(TRACKER_HTTP__WORKERS=workers)
    assert udp_address(tracker)[1] == int(tracker.url.rpartition(":")[2]), "the same port"
    with closing(Client(udp_address(tracker))) as client:
        connection_id = client.connect()
        reply = client.ask(announce_packet(connection_id))
        assert (reply[:8].hex(), len(reply)) == ("0000000155667788", 20)
        same = tracker.announce(info_hash=HASH, peer_id="-qB5020-abcdefghijkl", key="ca298a56", left="1000")
        assert (same[b"incomplete"], same[b"complete"], same[b"peers"]) == (1, 0, b"")
        other = tracker.announce(info_hash=HASH, port="6882")
        assert other[b"peers"] == b"\x7f\0\0\1\x1a\xe1"
        reply = client.ask(announce_packet(connection_id, event=0))
        assert reply[12:20].hex() == "0000000100000001" and reply[20:] == b"\x7f\0\0\1\x1a\xe2"
        reply = client.ask(scrape_packet(connection_id))
        assert reply[8:].hex() == "000000010000000000000001"
        stopped = client.ask(announce_packet(connection_id, event=3))
        assert stopped[12:20].hex() == "0000000000000001"
    assert tracker.end() == 0


def test_ids_are_valid_in_every_process_and_after_a_restart(start_tracker: StartTracker) -> None:
    """U2"""
    tracker = start_tracker(TRACKER_HTTP__WORKERS="2")
    with closing(Client(udp_address(tracker))) as client:
        connection_id = client.connect()
    for _ in range(16):  # from 16 ports, so that both processes get some
        with closing(Client(udp_address(tracker))) as client:
            assert client.ask(announce_packet(connection_id))[:4] == b"\0\0\0\1"
    assert tracker.end() == 0
    again = start_tracker()
    with closing(Client(udp_address(again))) as client:
        assert client.ask(announce_packet(connection_id))[:4] == b"\0\0\0\1"
    assert again.end() == 0


@pytest.mark.slow
def test_packets_wait_for_the_process_that_replaces_a_killed_one(start_tracker: StartTracker) -> None:
    tracker = start_tracker(TRACKER_HTTP__WORKERS="2")
    with closing(Client(udp_address(tracker))) as client:
        connection_id = client.connect()
    victims = pids_of_web_processes(tracker)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not set(victims) & set(pids_of_web_processes(tracker)))
    clients = [Client(udp_address(tracker)) for _ in range(8)]
    for each in clients:
        each.socket.send(announce_packet(connection_id))
    for each in clients:
        assert each.socket.recv(100)[:4] == b"\0\0\0\1"
        each.close()
    assert tracker.end() == 0


def test_a_private_tracker_serves_udp_where_it_is_named(start_tracker: StartTracker) -> None:
    tracker = start_tracker(TRACKER_USERS__PRIVATE="required")
    assert "udp://" not in tracker.banner
    assert re.search(r"^ +udp +off: passkeys are required", tracker.banner, re.MULTILINE), tracker.banner
    assert tracker.end() == 0
    tracker = start_tracker(TRACKER_USERS__PRIVATE="required", TRACKER_UDP__LISTEN="127.0.0.1:0")
    assert re.search(r"udp://127\.0\.0\.1:\d+/<passkey>/announce", tracker.banner)
    with closing(Client(udp_address(tracker))) as client:
        connection_id = client.connect()
        reply = client.ask(announce_packet(connection_id, b"\x02\x12/0a1b/announce?x=1"))
        assert reply[:4] == b"\0\0\0\3" and reply[8:].startswith(b"unknown passkey")
        assert client.ask(scrape_packet(connection_id))[:4] == b"\0\0\0\3"
    assert tracker.end() == 0


def test_a_named_udp_port_in_use_is_a_one_line_error(start_tracker: StartTracker, tmp_path: Any) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as other:
        other.bind(("127.0.0.1", 0))
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        refused = trackers.run(tmp_path, "serve", TRACKER_UDP__LISTEN=taken, **trackers.ANY_PORTS)
    assert refused.returncode == 1 and f"cannot listen on {taken} (UDP)" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_banner_says_that_the_udp_port_is_in_use(start_tracker: StartTracker) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        port = free_port()  # over TCP: one that is free over UDP may be taken there
        taken.bind(("127.0.0.1", port))
        tracker = start_tracker(TRACKER_HTTP__LISTEN=f"127.0.0.1:{port}")
        assert re.search(r"^ +udp +off: its port is in use", tracker.banner, re.MULTILINE), tracker.banner
        assert tracker.end() == 0
