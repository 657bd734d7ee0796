"""The announce URLs of the dashboard and the API."""

from typing import Any

import pytest

from tests.admin.conftest import Admin, Serve
from tracker.admin.context import announce_urls
from tracker.settings.model import Settings
from tracker.settings.public import AnnounceSettings

PASSKEY = "p" * 32


def urls(
    admin: Admin, listen: tuple[str, ...], udp: tuple[str, ...] = (), host: str = "", passkey: str = "", **settings: Any
) -> list[str]:
    admin.context.listening, admin.context.udp = listen, udp
    admin.context.live.current = Settings.model_validate({"webtorrent": {"enabled": False}, **settings})
    return announce_urls(admin.context, host, passkey)


@pytest.mark.parametrize(
    ("listen", "host", "found"),
    [
        (("0.0.0.0:6969",), "tracker.example:6970", ["http://tracker.example:6969/announce"]),
        (("0.0.0.0:6969", "[::]:6969"), "10.0.0.1:6970", ["http://10.0.0.1:6969/announce"]),
        (("[::]:6969",), "[2001:db8::1]:6970", ["http://[2001:db8::1]:6969/announce"]),
        (("10.0.0.1:80", "unix:/run/t.sock"), "localhost", ["http://10.0.0.1/announce"]),
        (("127.0.0.1:6969",), "localhost:6970", ["http://127.0.0.1:6969/announce"]),
        (("127.0.0.1:0",), "localhost:1", []),
        (("unix:/run/t.sock",), "tracker.example", []),
    ],
)
def test_wildcard_addresses_become_the_host_of_the_request(
    admin: Admin, listen: tuple[str, ...], host: str, found: list[str]
) -> None:
    assert urls(admin, listen, host=host) == found


@pytest.mark.parametrize("host", ["localhost:6970", "127.0.0.1", "127.9.9.9:1", "[::1]:6970", ""])
def test_the_url_is_unknown_to_a_browser_that_may_come_through_a_tunnel(admin: Admin, host: str) -> None:
    assert urls(admin, ("0.0.0.0:6969", "[::]:6969"), ("0.0.0.0:6969",), host) == []


def test_the_url_is_unknown_behind_a_proxy(admin: Admin) -> None:
    behind: Any = {"http": {"trusted_proxies": ("10.0.0.0/8",)}}
    assert urls(admin, ("10.0.0.1:6969",), host="tracker.example", **behind) == []


def test_the_passkey_is_part_of_the_url_and_urls_for_udp_and_browsers_follow(admin: Admin) -> None:
    served: Any = {"webtorrent": {"enabled": True}}
    assert urls(admin, ("0.0.0.0:80",), ("0.0.0.0:80", "[::]:80"), "t.example:6970", "p", **served) == [
        "http://t.example/p/announce",
        "udp://t.example:80/p/announce",
        "ws://t.example/p/announce",
    ]


def test_configured_urls_come_first_everywhere(admin: Admin) -> None:
    own: Any = {
        "announce": {"urls": "https://t.example/, udp://t.example:6969"},
        "http": {"trusted_proxies": ("10.0.0.0/8",)},
    }
    assert urls(admin, ("0.0.0.0:80",), host="localhost", passkey="p", **own) == [
        "https://t.example/p/announce",
        "udp://t.example:6969/p/announce",
    ]


@pytest.mark.parametrize(
    ("url", "valid"),
    [
        ("https://t.example", True),
        ("http://[2001:db8::1]:6969/", True),
        ("udp://t.example:6969", True),
        ("wss://t.example", True),
        ("udp://t.example", False),
        ("https://t.example/announce", False),
        (f"https://t.example/{PASSKEY}/announce", False),
        (f"https://{PASSKEY}@t.example", False),
        ("https://t.example?x=1", False),
        ("ftp://t.example", False),
        ("t.example:6969", False),
        ("https://t.example:99999", False),
    ],
)
def test_a_configured_url_has_no_path(url: str, valid: bool) -> None:
    if valid:
        assert AnnounceSettings.model_validate({"urls": url}).urls == (url.rstrip("/"),)
    else:
        with pytest.raises(ValueError, match="without a path") as error:
            AnnounceSettings.model_validate({"urls": url})
        assert PASSKEY not in str(error.value.errors(include_input=False))  # type: ignore[attr-defined]


async def test_pages_and_the_api_name_the_configured_urls_or_say_that_they_are_unknown(serve: Serve) -> None:
    admin = await serve()
    for settings, url in (
        ({"urls": "https://t.example"}, "https://t.example/"),
        ({}, "unknown: set TRACKER_ANNOUNCE__URLS"),
    ):
        admin.context.listening = ("0.0.0.0:6969",)
        required: Any = {"announce": settings, "users": {"private": "required"}}
        admin.context.live.current = Settings.model_validate(required)
        async with admin.browser() as browser:
            made = await browser.post("/users", data={})
            assert url in await made.text()
            assert url in await (await browser.get("/")).text()
        async with admin.client("operate") as client:
            told = await (await client.post("/api/v1/users", json={})).json()
        expected = [f"https://t.example/{told['passkey']}/announce"] if settings else []
        assert told["announce_urls"] == expected
