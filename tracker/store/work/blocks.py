"""Who gets nothing: claimants, addresses and networks that are blocked, in one project or in all."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Annotated

from tracker.errors import ClientError
from tracker.store.client.pipe import Argument
from tracker.store.schema.lenient_numbers import whole
from tracker.store.schema.record import Field
from tracker.store.sharding.shards import Part
from tracker.store.work.log import newest_entries
from tracker.store.work.records import check_claimant, known

LOG_ENTRIES = 1000


@dataclass(frozen=True, slots=True)
class BlockEvent:
    """A claimant was blocked or unblocked, or reported wrong domains."""

    id: str
    at: float  # epoch seconds
    what: Annotated[str, Field("`blocked`, `unblocked` or `wrong domains`.")]
    who: str
    address: str = ""
    item: str = ""
    reported: Annotated[str, Field("Bytes by domain, as reported (JSON).")] = ""


class Blocks(Part):
    """``clock`` returns epoch seconds. A change is valid from the next call on."""

    async def block(self, who: str, project: str | None = None) -> bool:
        """Blocks a claimant, an address, or the /64 of IPv6 addresses, in ``project`` or everywhere. False if it was
        blocked before. Raises UnknownProject and ClientError."""
        return await self._change("blocked", who, project)

    async def unblock(self, who: str, project: str | None = None) -> bool:
        """False if it was not blocked. Raises UnknownProject and ClientError."""
        return await self._change("unblocked", who, project)

    async def _change(self, what: str, who: str, project: str | None) -> bool:
        argv: list[Argument] = [project or "", what, check_blockable(who), self._now_ms(), LOG_ENTRIES]
        return bool(known(await self._scripts.work_block(argv)))

    async def is_blocked(self, project: str, claimant: str, address: str) -> bool:
        """Whether the claimant, the address or its /64 is blocked, in ``project`` or everywhere."""
        who = (claimant, *sender_of(address))
        found = await self._connection.pipeline(
            ("SMISMEMBER", self._keys.work_blocked(project), *who),
            ("SMISMEMBER", self._keys.work_blocked_everywhere(), *who),
        )
        return any(any(each) for each in found if not isinstance(each, Exception))

    async def all(self, project: str | None = None) -> list[str]:
        """Who is blocked in ``project``, or everywhere, in order."""
        key = self._keys.work_blocked(project) if project else self._keys.work_blocked_everywhere()
        return sorted(who.decode("utf-8", "replace") for who in await self._connection.command("SMEMBERS", key))

    async def log(self, project: str, count: int = 100, before: str = "") -> list[BlockEvent]:
        """The newest events of a project first, older than the one with the id ``before``."""
        entries = await newest_entries(self._connection, self._keys.work_blocked_log(project), count, before)
        names = ("what", "who", "ip", "item", "bytes")
        return [
            BlockEvent(id, whole(row.get("at", "").encode()) / 1000, *(row.get(name, "") for name in names))
            for id, row in entries
        ]


def sender_of(address: str) -> tuple[str, str]:
    """An address in its usual form, and the /64 of an IPv6 address: both can be blocked."""
    if not address:
        return "", ""
    try:
        parsed = ip_address(address)
    except ValueError as error:
        raise ClientError("not an IP address") from error
    if isinstance(parsed, IPv4Address) or parsed.ipv4_mapped:
        return str(getattr(parsed, "ipv4_mapped", parsed)), ""
    return str(parsed), str(ip_network((parsed, 64), strict=False))


def check_blockable(who: str) -> str:
    """The one form in which ``who`` is stored. Raises ClientError."""
    if re.search("[.:]", who):
        try:
            if "/" not in who:
                address = ip_address(who)
                return str(getattr(address, "ipv4_mapped", None) or address)
            network = ip_network(who, strict=False)
        except ValueError as error:
            raise ClientError("neither a claimant nor an address") from error
        if network.version != 6 or network.prefixlen != 64:
            raise ClientError("a network that can be blocked is the /64 of IPv6 addresses")
        return str(network)
    return check_claimant(who)
