"""The announce URLs of the dashboard."""

import pytest

from tracker.admin.pages.announce_urls import announce_urls


@pytest.mark.parametrize(
    ("listen", "host", "urls"),
    [
        (("0.0.0.0:6969",), "tracker.example:6970", ["http://tracker.example:6969/announce"]),
        (("0.0.0.0:6969", "[::]:6969"), "127.0.0.1:6970", ["http://127.0.0.1:6969/announce"]),
        (("[::]:6969",), "[::1]:6970", ["http://[::1]:6969/announce"]),
        (("10.0.0.1:80", "unix:/run/t.sock"), "localhost", ["http://10.0.0.1/announce"]),
        (("127.0.0.1:0",), "localhost:1", []),
    ],
)
def test_wildcard_addresses_become_the_host_of_the_request(
    listen: tuple[str, ...], host: str, urls: list[str]
) -> None:
    assert announce_urls(listen, (), host) == urls


def test_the_passkey_is_part_of_the_url() -> None:
    assert announce_urls(("0.0.0.0:80",), (), "t.example", "p" * 32) == [
        f"http://t.example/{'p' * 32}/announce"
    ]


def test_urls_for_udp_follow_with_their_port() -> None:
    urls = announce_urls(("0.0.0.0:80",), ("0.0.0.0:80", "[::]:80"), "t.example:6970", "p")
    assert urls == ["http://t.example/p/announce", "udp://t.example:80/p/announce"]
