"""Settings of the UDP port."""

from typing import Annotated

from pydantic import AfterValidator, Field

from tracker.settings.types import Section
from tracker.wire.endpoint import split_address

AUTO, OFF = "auto", "off"


def _addresses(listen: tuple[str, ...]) -> tuple[str, ...]:
    if not listen or (len(listen) > 1 and not {AUTO, OFF}.isdisjoint(listen)):
        raise ValueError("write auto, off, or addresses: host:port or [ipv6]:port")
    for address in listen:
        if address not in (AUTO, OFF):
            _check(address)
    return listen


def _check(address: str) -> None:
    if address.startswith("unix:"):
        raise ValueError("UDP needs host:port or [ipv6]:port, not a unix socket")
    split_address(address)


class UdpSettings(Section):
    """Announces over UDP."""

    listen: Annotated[tuple[str, ...], AfterValidator(_addresses)] = Field(
        (AUTO,),
        description="Addresses for announces over UDP: `host:port` or `[ipv6]:port`. `auto`: the TCP addresses of "
        "`http.listen`, but none with trusted proxies or where passkeys are required. `off`: none.",
    )
    receive_buffer_bytes: Annotated[int, Field(ge=4096, le=1073741824)] = Field(
        4194304,
        description="Receive buffer of each UDP socket. The system limits it (`net.core.rmem_max`); less is logged. "
        "A default of 212,992 bytes holds 256 packets.",
    )
