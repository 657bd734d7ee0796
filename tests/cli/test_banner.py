"""What a tracker prints when it serves."""

from typing import Any

import pytest

from tracker.app.service import Banner
from tracker.cli.terminal import banner_text
from tracker.settings.model import Settings


def shown(**settings: Any) -> list[list[str]]:
    banner = Banner(("10.0.0.1:6969",), ("10.0.0.1:6969",), "a store", "here", site=("127.0.0.1:6971",))
    text = banner_text(banner, 7, Settings.model_validate(settings))
    return [line.split() for line in text.splitlines()[1:]]


def test_without_a_proxy_the_addresses_are_the_announce_urls() -> None:
    lines = shown(users={"private": "optional"})
    assert lines[:6] == [
        ["announce", "http://10.0.0.1:6969/announce"],
        ["http://10.0.0.1:6969/<passkey>/announce"],
        ["udp://10.0.0.1:6969/announce"],
        ["udp://10.0.0.1:6969/<passkey>/announce"],
        ["ws://10.0.0.1:6969/announce"],
        ["ws://10.0.0.1:6969/<passkey>/announce"],
    ]
    assert not any("ws://" in line[-1] for line in shown(webtorrent={"enabled": False}))
    assert ["site", "127.0.0.1:6971"] in lines


@pytest.mark.parametrize(
    ("urls", "announce"),
    [
        ((), [["announce", "unknown:", "set", "TRACKER_ANNOUNCE__URLS"]]),
        (("https://t.example",), [["announce", "https://t.example/<passkey>/announce"]]),
    ],
)
def test_behind_a_proxy_the_settings_name_the_announce_urls(urls: tuple[str, ...], announce: Any) -> None:
    behind: Any = {"trusted_proxies": ("10.0.0.0/8",)}
    lines = shown(http=behind, users={"private": "required"}, announce={"urls": urls})
    addresses = [["listen", "http://10.0.0.1:6969"], ["udp://10.0.0.1:6969"]]
    assert lines[:3] == [*announce, *addresses]


def test_a_tracker_without_places_says_how_to_get_them() -> None:
    assert ["places", "off:", "TRACKER_GEOIP__DATABASE=dbip-city-lite"] in [line[:3] for line in shown()]
    assert not any(line[0] == "places" for line in shown(uniques={"enabled": False}))
