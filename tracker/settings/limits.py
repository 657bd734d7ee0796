"""Settings of the rate limits per address."""

from typing import Annotated

from pydantic import Field

from tracker.settings.types import Network, Section


class LimitSettings(Section):
    """Rate limits per address (IPv6: per /64). An address beyond a limit gets longer intervals and fewer peers.
    Beyond twice the limit it is refused (most stops still pass). Beyond four times the limit its connections are
    closed without an answer."""

    all_reloaded = True

    enabled: bool = Field(True, description="Apply the limits of this section.")
    peer_announces_minute: Annotated[int, Field(ge=1, le=1_000_000_000)] = Field(
        20,
        description="Early announces per minute of one peer on one torrent. An announce is early if it comes less than "
        "30 seconds after the last one (or a quarter of the interval, if that is shorter).",
    )
    torrent_announces_minute: Annotated[int, Field(ge=1, le=1_000_000_000)] = Field(
        2000,
        description="Extra announces per minute from one address on one torrent: joins, stops, early or refused "
        "announces, and announces using another peer's id.",
    )
    joins_minute: int = Field(
        3000, ge=1, le=1_000_000_000, description="Joins per minute from one address, on all torrents together."
    )
    address_requests_minute: Annotated[int, Field(ge=1, le=1_000_000_000)] = Field(
        10_000, description="Announces plus scraped torrents per minute from one address, on all torrents together."
    )
    unknown_passkeys_minute: Annotated[int, Field(ge=1, le=1_000_000_000)] = Field(
        60,
        description="How many different unknown passkeys one address may try per minute. Beyond that, passkeys not "
        "seen as valid recently are refused without a lookup.",
    )
    work_requests_minute: Annotated[int, Field(ge=1, le=1_000_000_000)] = Field(
        60,
        description="Requests per minute from one address to the listener of work distribution. Beyond that they are "
        "refused with status 429.",
    )
    address_entries_per_torrent: Annotated[int, Field(ge=1, le=1000)] = Field(
        400,
        description="Endpoints and WebSockets one address may have in one swarm. Further peers get answers with a "
        "warning, but are not given to other peers.",
    )
    address_entries: Annotated[int, Field(ge=1, le=1_000_000_000)] = Field(
        50_000,
        description="Endpoints and WebSockets one address may have in all swarms together; a /24 (IPv6: /48) may have "
        "ten times as many.",
    )
    exempt: tuple[Network, ...] = Field(
        (),
        description="Networks (`198.18.0.0/15`) without limits, such as your own seedboxes. An IPv6 address exempts "
        "its whole /64. Their endpoints still count for the /24 or /48 around them.",
    )
    private_addresses: bool = Field(
        False,
        description="Also limit private and loopback addresses. Off by default: behind a proxy missing from "
        "`TRACKER_HTTP__TRUSTED_PROXIES`, all peers appear to have the proxy's address.",
    )
