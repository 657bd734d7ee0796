"""Types of single values: what they accept, and that no error shows a value."""

import pytest
from pydantic import BaseModel, ValidationError

from tracker.settings.types import Network, SiteUrl, UdpAddress, WebAddress, host_and_port


class _Values(BaseModel):
    network: Network | None = None
    web: WebAddress = "http://h"
    site: SiteUrl | None = None
    udp: UdpAddress = "h:1"


@pytest.mark.parametrize(
    ("written", "host", "port"),
    [
        ("localhost:8125", "localhost", 8125),
        ("127.0.0.1:1", "127.0.0.1", 1),
        ("[::1]:65535", "::1", 65535),
        ("[fe80::1]:8125", "fe80::1", 8125),
        ("stats.example:8125", "stats.example", 8125),
    ],
)
def test_a_udp_address_is_host_and_port(written: str, host: str, port: int) -> None:
    assert _Values(udp=written).udp == written
    assert host_and_port(written) == (host, port)


@pytest.mark.parametrize("written", ["", "h", "h:", ":1", "h:0", "h:65536", "::1:8125", "u@h:1", "h:1\n", "udp://h:1"])
def test_anything_else_is_no_udp_address(written: str) -> None:
    with pytest.raises(ValidationError, match="host:port"):
        _Values(udp=written)


@pytest.mark.parametrize("written", ["https://api.stathat.com", "http://127.0.0.1:8080", "http://[::1]:1/x/"])
def test_a_web_address_has_no_slash_at_its_end(written: str) -> None:
    assert _Values(web=written).web == written.rstrip("/")


@pytest.mark.parametrize(
    "written",
    [
        "",
        "h",
        "ftp://h",
        "https://",
        "http://h:99999",
        "http://u:hidden@h",
        "http://h/?k=hidden",
        "http://h#hidden",
        "http://h /x",
        "http://h\n",
        "http://[::1",
    ],
)
def test_a_web_address_has_no_user_query_or_fragment(written: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Values(web=written)
    shown = [detail["msg"] for detail in caught.value.errors()]
    assert shown == ["Value error, must be an http:// or https:// URL without user, query and fragment"]


@pytest.mark.parametrize(
    ("written", "site"),
    [
        ("https://tracker.example/", "https://tracker.example"),
        ("http://127.0.0.1:6970", "http://127.0.0.1:6970"),
        ("http://0.0.0.0:6970", "http://localhost:6970"),
        ("http://[::]:6970", "http://localhost:6970"),
        ("http://[::1]:6970", "http://[::1]:6970"),
    ],
)
def test_a_site_url_is_shown_as_browsers_reach_it(written: str, site: str) -> None:
    assert _Values(site=written).site == site


@pytest.mark.parametrize("written", ["", "tracker.example", "https://h/path", "ftp://h", "http://u@h", "http://h:x"])
def test_a_site_url_has_no_path_and_no_user(written: str) -> None:
    with pytest.raises(ValidationError, match="must be an http:// or https:// URL without"):
        _Values(site=written)


def test_a_network_is_parsed_from_text() -> None:
    assert str(_Values.model_validate({"network": " 10.0.0.0/8 "}).network) == "10.0.0.0/8"
    with pytest.raises(ValidationError):
        _Values.model_validate({"network": "10.0.0.1/8"})
