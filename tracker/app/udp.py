"""Opens the UDP sockets that the settings name, or by default those beside the TCP listeners."""

from collections.abc import Sequence

from tracker.errors import StartupError
from tracker.settings.model import Settings
from tracker.settings.udp import AUTO
from tracker.system.datagrams import DatagramSocket, close_all, open_datagram_sockets
from tracker.system.logger import Logger

log = Logger("tracker")


async def open_udp_sockets(settings: Settings, tcp: Sequence[str], processes: int) -> list[list[DatagramSocket]]:
    """The sockets of each process. ``tcp`` are the addresses of the listeners, with real ports.

    With ``auto`` an address that is not available is skipped with a warning; a named one raises StartupError.
    """
    addresses, buffer = settings.udp_addresses(tcp), settings.udp.receive_buffer_bytes
    if settings.udp.listen == (AUTO,):
        sockets = await _open_available(addresses, buffer, processes)
    else:
        sockets = await open_datagram_sockets(addresses, buffer, processes)
    if why := settings.why_no_udp(tcp):
        log.info("UDP is off; to serve it, name addresses in TRACKER_UDP__LISTEN", why=why)
    granted = min((each.receive_buffer for each in sockets[0]), default=buffer)
    if granted < buffer:
        remedy = f"sysctl -w net.core.rmem_max={buffer}"
        log.info("the system limits the receive buffer of UDP", bytes=granted, for_many_peers=remedy)
    return sockets


async def _open_available(addresses: Sequence[str], buffer: int, processes: int) -> list[list[DatagramSocket]]:
    """Skips addresses that cannot be opened, with a warning."""
    sockets: list[list[DatagramSocket]] = [[] for _ in range(processes)]
    try:
        for address in addresses:
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
