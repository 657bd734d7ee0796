"""Claims: items that claimants have under a lease.

Every step is one script. Leases are compared with ``clock``, so the clocks of all trackers on one store must agree
within a few seconds.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from tracker.errors import ClientError
from tracker.store.client.connection import Connection
from tracker.store.client.pipe import Argument
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.stats.months import month_of
from tracker.store.work.records import (
    MAX_TEXT,
    ClaimReply,
    DoneResult,
    Refusal,
    Refused,
    UnknownProject,
    check_bytes,
    check_claimant,
    claim_of,
    domains_text,
)

MAX_LOOKED_AT = 50
"""Items of a queue that a claim looks at for one that fits."""
MAX_LAPSED_BY_CLAIM = 20
_REASONS: dict[str, Refused] = {"blocked": "blocked", "budget": "budget", "empty": "empty"}


class Claims:
    """The claims of all projects. ``clock`` returns epoch seconds."""

    def __init__(
        self, connection: Connection, scripts: Scripts, keys: Keys, clock: Callable[[], float]
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._clock = clock

    def _now(self) -> int:
        return int(self._clock() * 1000)

    async def claim(
        self,
        project: str,
        claimant: str,
        *,
        address: str = "",
        version: str = "",
        free_bytes: int | None = None,
    ) -> ClaimReply:
        """Gives ``claimant`` an item, or says why not. Larger items than ``free_bytes`` are passed over in
        ``seeding``.

        ``claimant`` is a user id in ``seeding``, else a name. First up to 20 claims end whose lease has ended. Raises
        UnknownProject, and ClientError for an impossible name.
        """
        who = (check_claimant(claimant), *_sender(address))
        room = "" if free_bytes is None else str(max(0, free_bytes))
        argv: list[Argument] = [project, self._now(), *who, version[:MAX_TEXT], room]
        outcome, *rest = _known(await self._scripts.work_claim([*argv, MAX_LOOKED_AT, MAX_LAPSED_BY_CLAIM]))
        if outcome != b"claimed":
            return _refusal(outcome.decode(), rest)
        name, record, token, ends = rest
        claim = claim_of(name, record, token, float(ends))
        assert claim is not None
        return claim

    async def done(
        self,
        project: str,
        claimant: str,
        item: str,
        *,
        token: str = "",
        address: str = "",
        version: str = "",
        user_agent: str = "",
        reported: Mapping[str, Any] | None = None,
        id_text: str = "",
    ) -> DoneResult:
        """The claimant reports that an item is done. ``reported`` holds bytes by domain, ``id_text`` what the claimant
        wants to see in the log. Without a token the claim is found by its claimant.

        Raises UnknownProject, and ClientError for an impossible name or number of bytes.
        """
        texts = (item, token, version[:MAX_TEXT], user_agent[:MAX_TEXT], id_text[:MAX_TEXT])
        return await self._done(project, claimant, address, texts, reported or {}, verified=False, seconds=0)

    async def complete(
        self, project: str, claimant: str, item: str, *, seconds: int, uploaded: int = 0
    ) -> DoneResult:
        """The tracker has verified a claim: ``seconds`` of seed time, and ``uploaded`` bytes as reported. A claim that
        lapsed counts too, once.

        Raises UnknownProject.
        """
        texts = (item, "", "", "", "")
        return await self._done(
            project, claimant, "", texts, {"": uploaded}, verified=True, seconds=max(0, seconds)
        )

    async def _done(
        self,
        project: str,
        claimant: str,
        address: str,
        texts: Sequence[str],
        reported: Mapping[str, Any],
        *,
        verified: bool,
        seconds: int,
    ) -> DoneResult:
        by_domain = check_bytes(reported)
        argv: list[Argument] = [project, self._now(), check_claimant(claimant), *_sender(address), *texts]
        argv += (month_of(self._clock()), int(verified), seconds, sum(by_domain.values()))
        argv += (bytes_text(by_domain), domains_text(by_domain))
        for domain, number in by_domain.items():
            if domain:
                argv += (domain, number)
        answer = _known(await self._scripts.work_done(argv))
        return DoneResult(answer.decode())

    async def release(
        self, project: str, claimant: str, item: str, *, token: str = "", address: str = ""
    ) -> bool:
        """The claimant gives an item back. False when it is not this claimant's, or the claimant is blocked.

        Raises UnknownProject, and ClientError for an impossible name.
        """
        argv: list[Argument] = [project, self._now(), 0, *_sender(address)]
        argv += (item, check_claimant(claimant), token)
        return int(_known(await self._scripts.work_release(argv))) > 0


def _known(answer: Any) -> Any:
    if answer is None:
        raise UnknownProject
    return answer


def _refusal(reason: str, rest: Sequence[Any]) -> Refusal:
    if reason == "rate":
        return Refusal("rate", retry_seconds=int(rest[0]) / 1000)
    if reason == "outdated":
        return Refusal("outdated", min_version=rest[0].decode("utf-8", "replace"))
    return Refusal(_REASONS[reason])


def _sender(address: str) -> tuple[str, str]:
    """An address in its usual form, and the /64 of an IPv6 address: both can be blocked."""
    if not address:
        return "", ""
    try:
        parsed = ip_address(address)
    except ValueError as error:
        raise ClientError("not an IP address") from error
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped), ""
        return str(parsed), str(ip_network((parsed, 64), strict=False))
    return str(parsed), ""


def bytes_text(by_domain: Mapping[str, int]) -> str:
    """Bytes by domain as they are logged."""
    return json.dumps(dict(by_domain), separators=(",", ":"), sort_keys=True)
