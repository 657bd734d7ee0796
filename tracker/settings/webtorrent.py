"""Settings of announces over WebSockets."""

from typing import Annotated

from pydantic import Field

from tracker.settings.types import Reloaded, Section


class WebTorrentSettings(Section):
    """WebTorrent: browsers announce over WebSockets, on the HTTP port."""

    enabled: bool | None = Field(
        None, description="Serve WebSockets. Not set: in open mode, unless passkeys are required."
    )
    interval_seconds: Reloaded[Annotated[int, Field(ge=10, le=3600)]] = Field(
        120,
        description="How often peers announce over a WebSocket. Only announces bring new offers, so a long interval "
        "delays connections between few peers.",
    )
    max_offers: Reloaded[int] = Field(
        10, ge=0, le=20, description="Offers of one announce that are passed on; further ones are ignored."
    )
    max_torrents: Reloaded[int] = Field(100, ge=1, le=10_000, description="Maximum number of torrents of a connection.")
    origins: tuple[str, ...] = Field(
        (),
        description="Sites whose pages may connect, such as `https://example.com`. Empty: all, and clients that name "
        "none.",
    )
