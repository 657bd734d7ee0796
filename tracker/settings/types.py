"""Types of the values of settings, and the base class of a section."""

import json
import re
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, TypeVar, get_origin
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr, ValidationInfo, field_validator

from tracker.wire.endpoint import split_address
from tracker.wire.tracker_url import parse_tracker_url

MAX_SECONDS, MAX_BYTES = 10**12, 2**53 - 1
"""Upper bounds: the store accepts expiry times up to the first, and its scripts count exactly up to the second."""


def checked_by(check: Callable[[Any], object]) -> AfterValidator:
    """``check`` raises ValueError for a wrong value; others stay as they are."""

    def validate(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(validate)


# Parsed here, because pydantic reports two errors for a union, both without the reason.
Network = Annotated[
    IPv4Network | IPv6Network,
    BeforeValidator(lambda value: ip_network(value.strip()) if isinstance(value, str) else value),
]


def url_parts(text: str, *schemes: str) -> SplitResult | None:
    """Those of a URL with one of these schemes and a host; None for any other text."""
    try:
        parts = urlsplit(text)
        valid = parts.scheme in schemes and parts.hostname and parts.port != 0 and text.isprintable()
    except ValueError:
        return None
    return parts if valid else None


def _web_address(value: str) -> str:
    """The error does not show the value: it may contain a key."""
    if not url_parts(value, "http", "https") or re.search(r"[@?#\s]", value):
        raise ValueError("must be an http:// or https:// URL without user, query and fragment")
    return value.rstrip("/")


WebAddress = Annotated[str, AfterValidator(_web_address)]
"""The URL of a server, without a trailing slash."""


def _announce_base(value: str) -> str:
    """The error does not show the value: it may contain a passkey."""
    parts = url_parts(value, "https", "http", "udp", "wss", "ws")
    valid = parts is not None and (parts.scheme != "udp" or parts.port is not None) and not parts.path.strip("/")
    if not valid or re.search(r"[@?#\s<>\"]", value):
        raise ValueError("must be the URL of a server, such as https://tracker.example, without a path")
    return value.rstrip("/")


AnnounceBase = Annotated[str, AfterValidator(_announce_base)]
"""An announce URL without its path: https, http, udp with a port, wss or ws."""


def host_and_port(address: str) -> tuple[str, int]:
    """Parses ``host:port`` or ``[ipv6]:port``; raises ValueError."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]/@]+)):([0-9]{1,5})", address)
    if found is None or not 0 < int(found[3]) < 65536:
        raise ValueError("must be written host:port or [ipv6]:port")
    return found[1] or found[2], int(found[3])


UdpAddress = Annotated[str, checked_by(host_and_port)]
ListenAddress = Annotated[str, checked_by(lambda value: value.startswith("unix:") or split_address(value))]
"""``host:port``, ``[ipv6]:port`` or ``unix:/path``."""


def check_udp_listen(value: str) -> None:
    if value.startswith("unix:"):
        raise ValueError("UDP needs host:port or [ipv6]:port, not a unix socket")
    split_address(value)


def _site_url(value: str) -> str:
    """Browsers open a port published on ``0.0.0.0`` or ``[::]`` as localhost."""
    parts = urlsplit(_web_address(value))
    if parts.path:
        raise ValueError("must be an http:// or https:// URL without a path")
    wildcard = re.match(r"0\.0\.0\.0|\[::\]", parts.netloc)
    return f"{parts.scheme}://{'localhost' + parts.netloc[wildcard.end() :] if wildcard else parts.netloc}"


SiteUrl = Annotated[str, AfterValidator(_site_url)]
"""The URL of a site as browsers show it, without a path."""


def _check_announce_urls(urls: tuple[SecretStr, ...]) -> None:
    """The error names the position in the list, because a URL may contain a passkey."""
    for number, url in enumerate(urls, 1):
        try:
            parse_tracker_url(url.get_secret_value())
        except ValueError:
            raise ValueError(
                f"number {number} is not an announce URL: http, https or udp, a host, and for udp a port"
            ) from None


AnnounceUrls = Annotated[tuple[SecretStr, ...], checked_by(_check_announce_urls)]
"""Other trackers; tracker_url.py validates the URLs and masks their passkeys."""


def queue_numbers(texts: tuple[str, ...]) -> dict[str, int]:
    """The numbers of queues by name; raises ValueError."""
    found = [re.fullmatch(r"([a-z][a-z0-9_]{0,63}):(-?[0-9]{1,3})", text, re.ASCII) for text in texts]
    if not all(found) or len(numbers := {each[1]: int(each[2]) for each in found if each}) < len(texts):
        raise ValueError("must be written queue:number, each queue once")
    return numbers


QueueNumbers = Annotated[tuple[str, ...], checked_by(queue_numbers)]
"""Numbers of some job queues, each written ``queue:number``."""

_T = TypeVar("_T")
RELOADED_MARK = object()
Reloaded = Annotated[_T, RELOADED_MARK]
"""The type of a setting that SIGHUP changes in a running tracker."""


class Section(BaseModel):
    """The settings of one part: frozen, without unknown fields. Its validator is built when it is first used."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _split_lists(cls, value: object, info: ValidationInfo) -> object:
        """Parses a list written as text: comma-separated or JSON."""
        name = info.field_name or ""
        if not isinstance(value, str) or get_origin(cls.model_fields[name].annotation) is not tuple:
            return value
        try:
            parsed = json.loads(value)
        except ValueError:  # `[::]:6969,0.0.0.0:6969` begins like JSON
            parsed = None
        return parsed if isinstance(parsed, list) else [item.strip() for item in value.split(",") if item.strip()]
