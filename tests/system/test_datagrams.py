"""Datagram sockets: addresses, ports that are taken, sockets of several processes, and buffers."""

import socket
from contextlib import ExitStack, closing

import pytest

from tracker.errors import StartupError
from tracker.system.datagrams import DatagramSocket, close_all, open_datagram_sockets, reply_control


async def opened(stack: ExitStack, *listen: str, buffer: int = 4096, processes: int = 1) -> list[list[DatagramSocket]]:
    sockets = await open_datagram_sockets(listen, buffer, processes)
    stack.callback(close_all, sockets)
    return sockets


async def test_an_address_is_written_with_its_real_port() -> None:
    with ExitStack() as stack:
        ((v4, v6),) = await opened(stack, "127.0.0.1:0", "[::1]:0")
        assert v4.address == f"127.0.0.1:{v4.socket.getsockname()[1]}" and not v4.ipv6
        assert v6.address == f"[::1]:{v6.socket.getsockname()[1]}" and v6.ipv6


async def test_both_families_share_a_port() -> None:
    with ExitStack() as stack:
        ((v4,),) = await opened(stack, "0.0.0.0:0")
        port = v4.socket.getsockname()[1]
        ((v6,),) = await opened(stack, f"[::]:{port}")
        assert v6.address == f"[::]:{port}" and v4.ancillary_bytes and v6.ancillary_bytes


@pytest.mark.parametrize("processes", [1, 3])
async def test_a_taken_port_is_an_error_also_when_its_owner_would_share_it(processes: int) -> None:
    with ExitStack() as stack:
        other = stack.enter_context(closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        with pytest.raises(StartupError, match=rf"127.0.0.1:{port} \(UDP\): the address is in use"):
            await opened(stack, f"127.0.0.1:{port}", processes=processes)


async def test_a_foreign_address_is_an_error() -> None:
    with ExitStack() as stack, pytest.raises(StartupError, match="does not have the address"):
        await opened(stack, "203.0.113.7:6969")


async def test_each_process_has_a_socket_of_each_address() -> None:
    with ExitStack() as stack:
        sockets = await opened(stack, "127.0.0.1:0", "[::1]:0", processes=3)
        assert len(sockets) == 3 and len({each.address for mine in sockets for each in mine}) == 2
        port = sockets[0][0].socket.getsockname()[1]
        clients = [stack.enter_context(closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))) for _ in range(64)]
        for client in clients:
            client.sendto(b"x", ("127.0.0.1", port))
        found = 0
        for mine in sockets:
            received = _waiting(mine[0])
            assert received > 0, "the kernel spreads clients over the sockets"
            found += received
        assert found == len(clients)


def _waiting(opened_socket: DatagramSocket) -> int:
    number = 0
    while True:
        try:
            opened_socket.socket.recv(10)
        except BlockingIOError:
            return number
        number += 1


async def test_the_buffer_never_shrinks() -> None:
    with ExitStack() as stack:
        ((small,),) = await opened(stack, "127.0.0.1:0", buffer=1)
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as default:
            usual = default.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert small.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == usual


async def test_drops_are_counted_exactly() -> None:
    with ExitStack() as stack:
        ((made,),) = await opened(stack, "127.0.0.1:0")
        client = stack.enter_context(closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
        assert made.dropped == 0
        for _ in range(2000):
            client.sendto(b"x", made.socket.getsockname())
        dropped = made.dropped
        assert dropped > 0 and _waiting(made) == 2000 - dropped


async def test_it_is_known_whether_datagrams_wait() -> None:
    with ExitStack() as stack:
        ((made,),) = await opened(stack, "127.0.0.1:0")
        assert made.fill == 0
        client = stack.enter_context(closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
        client.sendto(b"x", made.socket.getsockname())
        assert 0 < made.fill < 1 and _waiting(made) == 1 and made.fill == 0


def test_unknown_control_messages_name_no_source() -> None:
    assert reply_control([]) == []
    assert reply_control([(socket.SOL_SOCKET, 99, b"x" * 12), (socket.IPPROTO_IP, 8, b"cut")]) == []
