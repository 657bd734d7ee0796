"""How the values of settings are written, and what a section of them is. settings.py says which there are."""

import json
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, get_origin
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SecretStr,
    ValidationInfo,
    field_validator,
)

from tracker.tracker_url import parse_tracker_url

MOST_SECONDS, MOST_BYTES = 10**12, 2**53 - 1
"""More than anybody means, and as much as the store takes for the end of a key, and its scripts count exactly."""


def _network(value: object) -> object:
    # Parsed here, not by pydantic's union: that would complain twice, and about neither in words of its own.
    return ip_network(value.strip()) if isinstance(value, str) else value


Network = Annotated[IPv4Network | IPv6Network, BeforeValidator(_network)]


def _web_address(value: str) -> str:
    """The complaint shows no value: somebody may have put a key into it."""
    try:
        parts = urlsplit(value)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or re.search(r"[@?#\s]", value) or not value.isprintable():
        raise ValueError("must be an http:// or https:// URL without user, query and fragment")
    return value.rstrip("/")


WebAddress = Annotated[str, AfterValidator(_web_address)]
"""The URL of a server, without a slash at its end."""


def host_and_port(address: str) -> tuple[str, int]:
    """Out of ``host:port`` or ``[ipv6]:port``; raises ValueError."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]/@]+)):([0-9]{1,5})", address)
    if found is None or not 0 < int(found[3]) < 65536:
        raise ValueError("must be written host:port or [ipv6]:port")
    return found[1] or found[2], int(found[3])


def _udp_address(value: str) -> str:
    host_and_port(value)
    return value


UdpAddress = Annotated[str, AfterValidator(_udp_address)]


def split_address(address: str) -> tuple[str, int]:
    """(host without brackets, port) of an address to listen on; raises ValueError. Port 0 lets the system choose."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    usable = colon and host and (bracketed or ":" not in host)
    if not usable or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError("write host:port, [ipv6]:port or unix:/path")
    return host.strip("[]"), int(port)


def _listen_address(value: str) -> str:
    if not value.startswith("unix:"):
        split_address(value)
    return value


ListenAddress = Annotated[str, AfterValidator(_listen_address)]
"""``host:port``, ``[ipv6]:port`` or ``unix:/path``."""


def _announce_urls(urls: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    """The complaint counts them, for each may hold a passkey."""
    for number, url in enumerate(urls, 1):
        try:
            parse_tracker_url(url.get_secret_value())
        except ValueError:
            raise ValueError(
                f"number {number} is no announce URL: http, https or udp, a host, and for udp a port"
            ) from None
    return urls


AnnounceUrls = Annotated[tuple[SecretStr, ...], AfterValidator(_announce_urls)]
"""Other trackers; tracker_url.py says what may be one, and shows it without its passkey."""


class Section(BaseModel):
    """One part's settings: frozen, and nothing unknown gets in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _split_lists(cls, value: object, info: ValidationInfo) -> object:
        """A list may be written as text: comma-separated, or as JSON."""
        name = info.field_name or ""
        if not isinstance(value, str) or get_origin(cls.model_fields[name].annotation) is not tuple:
            return value
        return _items(value)


def _items(text: str) -> list[Any]:
    try:
        parsed = json.loads(text)
    except ValueError:  # `[::]:6969,0.0.0.0:6969` looks like JSON only at first sight
        parsed = None
    if isinstance(parsed, list):
        return parsed
    return [item.strip() for item in text.split(",") if item.strip()]
