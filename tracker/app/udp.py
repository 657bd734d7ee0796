"""Opens the UDP sockets that the settings name, or by default those beside the TCP listeners."""

from collections.abc import Sequence

import structlog

from tracker.errors import StartupError
from tracker.settings.model import Settings
from tracker.settings.udp import AUTO, OFF
from tracker.system.datagrams import DatagramSocket, close_all, open_datagram_sockets

log = structlog.get_logger("tracker")


async def open_udp_sockets(
    settings: Settings, tcp: Sequence[str], processes: int
) -> list[list[DatagramSocket]]:
    """The sockets of each process. ``tcp`` are the addresses of the listeners, with real ports.

    With ``auto`` an address that is not available is skipped with a warning; a named one raises StartupError.
    """
    listen, buffer = settings.udp.listen, settings.udp.receive_buffer_bytes
    if listen == (OFF,):
        return [[] for _ in range(processes)]
    if listen != (AUTO,):
        return await open_datagram_sockets(listen, buffer, processes)
    sockets: list[list[DatagramSocket]] = [[] for _ in range(processes)]
    try:
        for address in automatic(settings, tcp):
            try:
                opened = await open_datagram_sockets([address], buffer, processes)
            except StartupError as error:
                log.warning("an address is not served over UDP", why=str(error))
                continue
            for mine, more in zip(sockets, opened, strict=True):
                mine.extend(more)
    except BaseException:
        close_all(sockets)
        raise
    return sockets


def automatic(settings: Settings, tcp: Sequence[str]) -> list[str]:
    """The addresses that ``auto`` stands for.

    None with trusted proxies, because UDP goes round a proxy, and none where passkeys are required, because many
    clients send none over UDP.
    """
    if settings.http.trusted_proxies or settings.users.private == "required":
        return []
    return [address for address in tcp if not address.startswith("unix:")]
