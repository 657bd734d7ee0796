"""Settings of the admin port and of the log."""

from typing import Annotated, Literal

from pydantic import Field

from tracker.settings.types import ListenAddress, Reloaded, Section, SiteUrl


class AdminSettings(Section):
    """The admin port: dashboard, API and metrics. Everything but the probes and the sign-in page requires a token."""

    enabled: bool = True
    """Serve the admin port."""
    listen: tuple[ListenAddress, ...] = ("127.0.0.1:6970",)
    """Addresses of the admin port, written like `TRACKER_HTTP__LISTEN`. The port speaks plain HTTP: put a proxy with
    TLS in front of it unless it listens on this machine only."""
    hosts: tuple[str, ...] = ()
    """Host names, without ports, under which browsers and scripts may reach the admin port, besides `localhost` and the
    addresses it listens on. Requests for other hosts are refused."""
    url: SiteUrl | None = None
    """Where browsers reach the dashboard, such as `https://tracker.example`, if it differs from `listen`: behind a
    proxy, or on a port that a container publishes. Sign-in links begin with it, and its host is accepted like
    `hosts`."""
    session_seconds: int = Field(43_200, ge=60, le=2_592_000)
    """How long a sign-in to the dashboard lasts."""
    audit_entries: Annotated[int, Field(ge=1000, le=10_000_000)] = 100_000
    """Entries of the audit log, of about 300 bytes each. Older ones are deleted, and all after a year. Calls that
    change many rows have further entries of up to 8 KB: a tenth as many."""
    max_upload_bytes: int = Field(10_485_760, ge=1024, le=134_217_728)
    """Maximum size of a request body, and so of a .torrent file."""


class LogSettings(Section):
    """The log, on standard error."""

    level: Reloaded[Literal["debug", "info", "warning", "error"]] = "info"
    """Minimum level of the lines that are printed."""
    format: Reloaded[Literal["auto", "human", "json"]] = "auto"
    """`human` is coloured text, `json` one object per line; `auto` is `human` in a terminal, else `json`."""
