"""How single values are written: what is taken, and that no complaint shows a value."""

import pytest
from pydantic import BaseModel, ValidationError

from tracker.setting_types import Network, UdpAddress, WebAddress, host_and_port


class _Values(BaseModel):
    network: Network | None = None
    web: WebAddress = "http://h"
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


@pytest.mark.parametrize(
    "written", ["", "h", "h:", ":1", "h:0", "h:65536", "::1:8125", "u@h:1", "h:1\n", "udp://h:1"]
)
def test_anything_else_is_none(written: str) -> None:
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
def test_a_web_address_hides_nothing(written: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Values(web=written)
    told = [detail["msg"] for detail in caught.value.errors()]
    assert told == ["Value error, must be an http:// or https:// URL without user, query and fragment"]


def test_a_network_is_parsed_from_text() -> None:
    assert str(_Values.model_validate({"network": " 10.0.0.0/8 "}).network) == "10.0.0.0/8"
    with pytest.raises(ValidationError):
        _Values.model_validate({"network": "10.0.0.1/8"})
