"""Settings of the public HTTP port."""

from typing import Annotated

from pydantic import Field

from tracker.settings.types import ListenAddress, Network, Section


class HttpSettings(Section):
    """The public HTTP port: addresses, proxies, connection limits."""

    listen: tuple[ListenAddress, ...] = Field(
        ("0.0.0.0:6969", "[::]:6969"),
        description="Addresses to serve on: `host:port`, `[ipv6]:port` or `unix:/path`. On a system without IPv6, "
        "IPv6 addresses are skipped with a warning.",
    )
    trusted_proxies: tuple[Network, ...] = Field(
        (),
        description="Networks (`10.0.0.0/8`) whose X-Forwarded-For, Forwarded and PROXY headers and `ip=` are trusted. "
        "With at least one network here, connections over a unix socket are trusted as well.",
    )
    proxy_protocol: bool = Field(
        False, description="Expect a PROXY protocol header (v1 or v2) on connections from trusted proxies."
    )
    ip_parameter_from_private: bool = Field(
        False, description="Also trust `ip=` from private and loopback addresses, for tests in a LAN."
    )
    max_request_line_bytes: Annotated[int, Field(ge=1024, le=1048576)] = Field(
        32768, description="Maximum length of a request line. A scrape of 400 torrents needs 29,000 bytes."
    )
    max_header_bytes: Annotated[int, Field(ge=256, le=1048576)] = Field(
        8190,
        description="Maximum length of one header line. All lines of a request together may be as long as this plus "
        "`max_request_line_bytes`.",
    )
    keepalive_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        60, description="A connection is closed after being idle, or not reading its answers, for this long."
    )
    header_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        10,
        description="How long the head of a request may take, from its first byte (or from connecting) to the end of "
        "its header lines; at most `keepalive_seconds`. Then the connection is closed.",
    )
    max_connections: Annotated[int, Field(ge=16, le=1_000_000)] = Field(
        20_000,
        description="Maximum number of open connections per process; fewer where the limit of open files is lower. "
        "At the limit, each new connection closes the oldest idle one.",
    )
    max_connections_per_address: Annotated[int, Field(ge=1, le=1_000_000_000)] = Field(
        2000,
        description="Maximum number of open connections per address (IPv6: per /64) and process. At the limit, each "
        "new connection closes the oldest idle one of that address. Trusted proxies have no limit.",
    )
    stop_delay_seconds: Annotated[float, Field(ge=0, le=600)] = Field(
        0,
        description="How long to keep serving after SIGTERM while `/ready` reports not ready, so that a load balancer "
        "stops sending requests before the port closes.",
    )
    ready_when_degraded: bool = Field(
        True,
        description="Answer `/ready` with 200 while this tracker reaches only some shards of the store. `false` where "
        "a load balancer has another tracker, which may reach them all: 503. It must still use a tracker if none is "
        "ready.",
    )
    workers: Annotated[int, Field(ge=1, le=64)] = Field(
        1, description="Processes that answer requests. With 2 or more, background work has its own process."
    )
    keep_user_agents: bool = Field(
        False,
        description="Keep the User-Agent header of a peer's announces, up to 64 characters, for the change feed and "
        "lists of peers. Over UDP there is none.",
    )
    access_log: bool = Field(False, description="Log one line per request, without its passkey.")
