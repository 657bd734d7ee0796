"""The settings of the limits: how much one address may do before it is told less, refused, and dropped."""

from pydantic import Field

from tracker.setting_types import Network, Section


class LimitSettings(Section):
    """What one address (IPv6: one /64) may do in a minute. Beyond it answers name longer intervals and fewer peers; beyond twice as
    much it is refused, beyond four times as much its connections are closed without an answer."""

    enabled: bool = Field(True, description="Limit what one address may do.")
    early_seconds: float = Field(
        30,
        ge=0,
        le=3600,
        description="A peer that announces again within so many seconds is early; at most a quarter of what the "
        "peers are told to keep to.",
    )
    peer_announces_minute: int = Field(
        20, ge=1, le=1_000_000_000, description="Early announces of one peer in one torrent."
    )
    torrent_announces_minute: int = Field(
        2000,
        ge=1,
        le=1_000_000_000,
        description="Announces of one address in one torrent that are more than a peer's regular one: joins, stops, early "
        "and refused ones, and those with a peer id that is somebody else's.",
    )
    joins_minute: int = Field(
        3000, ge=1, le=1_000_000_000, description="Peers of one address that join, in all torrents together."
    )
    address_requests_minute: int = Field(
        10_000,
        ge=1,
        le=1_000_000_000,
        description="Scrapes of one address, and announces in all torrents together that are more than a peer's regular one.",
    )
    unknown_passkeys_minute: int = Field(
        60,
        ge=1,
        le=1_000_000_000,
        description="Different unknown passkeys of one address, before those of them that were not seen to be good are refused "
        "without being looked up.",
    )
    exempt: tuple[Network, ...] = Field(
        (),
        description="Networks (`198.18.0.0/15`) that are not limited, such as your own seedboxes; of an IPv6 address its whole "
        "/64.",
    )
    private_addresses: bool = Field(
        False,
        description="Limit private and loopback addresses too. They are left out because behind a proxy that is not "
        "in `TRACKER_HTTP__TRUSTED_PROXIES` everybody seems to have the proxy's.",
    )
