"""The addresses that the tracker listens on, and its errors when it cannot."""

import asyncio
import contextlib
import errno
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.frontends.http.conftest import Logs
from tests.frontends.http.harness import ANNOUNCE, RecordingTracker, on_loops
from tests.raw_http import connect
from tests.waiting import eventually
from tracker.errors import StartupError
from tracker.frontends.http.server import serve_http
from tracker.settings.model import LiveSettings, Settings
from tracker.settings.public import HttpSettings
from tracker.settings.site import AdminSettings
from tracker.system import listeners
from tracker.system.listeners import BACKLOG, open_listeners


@contextlib.asynccontextmanager
async def listening(*listen: str) -> AsyncIterator[tuple[str, ...]]:
    settings = LiveSettings(Settings(http=HttpSettings(listen=listen)))
    async with serve_http(RecordingTracker(), settings) as addresses:
        yield addresses


async def is_served(address: str) -> bool:
    async with connect(address) as client:
        return (await client.get("/")).status_line == "HTTP/1.1 200 OK"


async def refusal(*listen: str) -> str:
    """The error of listening on these addresses."""
    with pytest.raises(StartupError) as caught:
        async with listening(*listen):
            pass
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def used_address() -> Iterator[str]:
    """An address that another socket listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@on_loops()
async def test_several_addresses_of_all_kinds_are_served(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    async with listening("127.0.0.1:0", "[::1]:0", "localhost:0", f"unix:{path}") as addresses:
        assert addresses[0].startswith("127.0.0.1:")
        assert addresses[1].startswith("[::1]:")
        assert addresses[-1] == f"unix:{path}"
        assert not any(address.endswith(":0") for address in addresses)
        for address in addresses:
            assert await is_served(address)
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert not path.exists()


@on_loops()
async def test_both_families_share_a_port() -> None:
    """The default, with a free port: :: is IPv6 only, whatever the system's default is."""
    async with listening("0.0.0.0:0") as (four,):
        port = four.rpartition(":")[2]
        async with listening(f"[::]:{port}") as (six,):
            assert (four, six) == (f"0.0.0.0:{port}", f"[::]:{port}")
            assert await is_served(f"127.0.0.1:{port}")
            assert await is_served(f"[::1]:{port}")


@on_loops("uvloop")
async def test_a_restart_finds_its_port_free() -> None:
    """Connections of the last run are in TIME_WAIT."""
    async with listening("127.0.0.1:0") as (address,):
        client = connect(address)
        await (await client.__aenter__()).get(ANNOUNCE)
    async with listening(address) as again:
        assert again == (address,)
    await client.__aexit__(None, None, None)


@on_loops("uvloop")
async def test_a_port_in_use_is_a_one_line_error(used_address: str) -> None:
    assert await refusal(used_address) == f"cannot listen on {used_address}: the address is in use by another process"


@on_loops("uvloop")
async def test_one_bad_address_opens_none(used_address: str, tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    assert used_address in await refusal(f"unix:{path}", "127.0.0.1:0", used_address)
    assert not path.exists()


@pytest.mark.parametrize(
    "listen", [*("6969", "localhost", "localhost:", ":6969", "::1:6969", "[::1]", "a:b", "a:-1", "a:65536", "a:٣", "")]
)
def test_malformed_addresses_are_refused_with_the_settings(listen: str) -> None:
    """Before anything is opened."""
    for section in (HttpSettings, AdminSettings):
        with pytest.raises(ValidationError, match=r"write host:port, \[ipv6\]:port or unix:/path"):
            section(listen=(listen,))


@on_loops("uvloop")
async def test_addresses_of_other_machines_are_refused() -> None:
    for listen in ("192.0.2.1:0", "[2001:db8::1]:0"):
        assert await refusal(listen) == f"cannot listen on {listen}: this machine does not have the address"
    assert "host.invalid:1" in await refusal("host.invalid:1")
    assert "no address" in await refusal()


@on_loops("uvloop")
@pytest.mark.parametrize("error", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
async def test_a_system_without_ipv6_starts_with_a_warning(
    error: int, monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    """The socket class replaces such a kernel."""

    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(error, os.strerror(error))
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Socket)
    opened = await open_listeners(["127.0.0.1:0", "[::]:0"])
    assert [listener.address.rpartition(":")[0] for listener in opened] == ["127.0.0.1"]
    opened[0].close()
    with pytest.raises(StartupError, match="configure a usable address"):
        await open_listeners(["[::1]:0"])
    assert [line["listen"] for line in logs if line["log_level"] == "warning"] == ["[::]:0", "[::1]:0"]


@on_loops("uvloop")
async def test_stale_socket_files_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    async with listening(f"unix:{path}") as (address,):
        assert await is_served(address)
        assert "in use" in await refusal(f"unix:{path}")
        assert await is_served(address)


@on_loops("uvloop")
async def test_files_other_than_sockets_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    assert "not a socket" in await refusal(f"unix:{path}")
    assert path.read_text() == "data"
    assert "unix" in await refusal(f"unix:{tmp_path}/{'x' * 200}")
    assert "missing" in await refusal(f"unix:{tmp_path}/missing/http.sock")


@on_loops("uvloop")
async def test_a_replaced_socket_file_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    async with listening(f"unix:{path}"):
        path.unlink()
        path.write_text("not ours")
    assert path.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports it")
async def test_an_accept_queue_reports_its_length_and_limit() -> None:
    (listener,) = await open_listeners(["127.0.0.1:0"])
    max_length = min(BACKLOG, int(await asyncio.to_thread(Path("/proc/sys/net/core/somaxconn").read_text)))
    with contextlib.ExitStack() as stack:
        stack.callback(listener.close)
        assert listener.queue == (0, max_length)
        for _ in range(3):
            stack.enter_context(socket.create_connection(listener.socket.getsockname()))
        assert listener.queue == (3, max_length)
        listener.socket.accept()[0].close()
        assert listener.queue == (2, max_length)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds connections back")
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_the_system_holds_back_connections_until_their_request_is_there(host: str) -> None:
    """Or for about a second."""
    (listener,) = await open_listeners([f"{host}:0"])
    with contextlib.ExitStack() as stack:
        stack.callback(listener.close)
        address, opened = listener.socket.getsockname()[:2], []

        def is_held_back() -> bool:
            """A new connection that sends nothing."""
            before = listener.queue[0]
            opened.append(stack.enter_context(socket.create_connection(address)))
            return listener.holds_back and listener.queue[0] == before

        assert listener.defer_accept() and not listener.holds_back
        await eventually(is_held_back)  # a machine that stalls for a second may miss it
        await eventually(lambda: listener.queue[0] == len(opened) and not listener.holds_back)
        await eventually(is_held_back)
        opened[-1].sendall(b"GET")
        await eventually(lambda: listener.queue[0] == len(opened))
        assert listener.defer_accept(0) and not is_held_back()
        await eventually(lambda: listener.queue[0] == len(opened))


async def test_a_system_that_does_not_list_connections_may_hold_some_back(monkeypatch: pytest.MonkeyPatch) -> None:
    (listener,) = await open_listeners(["127.0.0.1:0"])
    monkeypatch.setattr(listeners, "_TCP_TABLE", "/nowhere")
    assert listener.holds_back
    listener.close()


async def test_unix_sockets_hold_nothing_back(tmp_path: Path) -> None:
    (listener,) = await open_listeners([f"unix:{tmp_path / 'http.sock'}"])
    assert not listener.defer_accept() and not listener.defer_accept(0)
    listener.close()
