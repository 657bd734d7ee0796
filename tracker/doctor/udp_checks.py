"""Checks of this machine for announces over UDP."""

from collections.abc import Iterator
from pathlib import Path

from tracker.doctor import Finding
from tracker.doctor.settings_checks import is_public
from tracker.settings.model import Settings
from tracker.system.datagrams import KNOWS_DESTINATION

SYSTEM = Path("/proc/sys/net")
_BUFFER = "core/rmem_max"
_WILDCARDS = ("0.0.0.0:", "[::]:")
_CONNTRACK = "netfilter/nf_conntrack_max"


def check_udp(
    settings: Settings, system: Path = SYSTEM, *, knows_destination: bool = KNOWS_DESTINATION
) -> Iterator[Finding]:
    """What loses packets of a tracker with many peers on this system; nothing where UDP is off or local.

    Without ``knows_destination`` a socket on all addresses may answer from another address than was asked.
    """
    addresses = settings.udp_addresses(settings.http.listen)
    if not any(map(is_public, addresses)):
        return
    if not knows_destination and (everywhere := [each for each in addresses if each.startswith(_WILDCARDS)]):
        text = f"on this system {everywhere[0]} may answer from another address than was asked; clients ignore that"
        remedy = "if this machine has several addresses, name each of them in TRACKER_UDP__LISTEN"
        yield Finding("warning", "udp addresses", text, remedy)
    granted, wanted = _number(system / _BUFFER), settings.udp.receive_buffer_bytes
    if granted is not None and granted < wanted:
        text = f"the receive buffer of UDP sockets is at most {granted} bytes: bursts of announces are lost"
        yield Finding("warning", "udp", text, f"sysctl -w net.core.rmem_max={wanted}, then restart the tracker")
    else:
        yield Finding("ok", "udp", f"a receive buffer of {wanted} bytes")
    tracked = _number(system / _CONNTRACK)
    if tracked is not None:
        text = f"the firewall tracks connections, at most {tracked}; each UDP client takes one for a minute"
        yield Finding("ok", "udp firewall", text, "with many peers exempt the port, see docs/udp.md")


def _number(path: Path) -> int | None:
    """None if the system does not have it."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
