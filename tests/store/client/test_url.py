"""The forms of a store's URL. test_connection.py tests what redis-py makes of a server's URL."""

import pytest

from tracker.errors import StartupError
from tracker.store.client.url import SentinelUrl, node_urls, parse_url, url_at


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis+sentinel://h/m", SentinelUrl((("h", 26379),), "m")),
        (
            "redis+sentinel://h:1,[::1]:2,10.0.0.1/m.y-1/3",
            SentinelUrl((("h", 1), ("::1", 2), ("10.0.0.1", 26379)), "m.y-1", 3),
        ),
        ("REDIS+SENTINEL://h/m?db=4", SentinelUrl((("h", 26379),), "m", 4)),
        ("redis+sentinel://:s%2F%40cret@h/m/", SentinelUrl((("h", 26379),), "m", 0, None, "s/@cret")),
        ("redis+sentinel://me@h/m", SentinelUrl((("h", 26379),), "m", 0, "me", None)),
        (
            "rediss+sentinel://me:s3cret@h,i/m/0",
            SentinelUrl((("h", 26379), ("i", 26379)), "m", 0, "me", "s3cret", tls=True),
        ),
    ],
)
def test_urls_of_sentinels_are_parsed(url: str, expected: SentinelUrl) -> None:
    assert parse_url(url) == expected
    assert "cret" not in repr(parse_url(url))


@pytest.mark.parametrize("url", ["redis://h/0", "rediss://u:p@h:1/2", "unix:///s?db=1"])
def test_a_url_of_a_server_is_not_one_of_sentinels(url: str) -> None:
    assert parse_url(url) is None


@pytest.mark.parametrize(
    ("url", "nodes"),
    [
        ("redis://h/0", ["redis://h/0"]),
        ("redis://u:a,b@h:1,i/0", ["redis://u:a,b@h:1/0", "redis://u:a,b@i/0"]),
        ("rediss://[::1]:1,[::2]:2", ["rediss://[::1]:1", "rediss://[::2]:2"]),
        ("redis+sentinel://h,i/m", ["redis+sentinel://h,i/m"]),
        ("unix:///a,b", ["unix:///a,b"]),
    ],
)
def test_several_nodes_of_a_cluster_have_a_url_each(url: str, nodes: list[str]) -> None:
    parse_url(url)
    assert node_urls(url) == nodes


def test_the_url_of_another_node_has_the_same_user_and_password() -> None:
    assert url_at("rediss://me:s3cret@[::1]:1,[::2]:2/0", ("h", 7)) == "rediss://me:s3cret@h:7/0"


@pytest.mark.parametrize("url", ["redis://h,", "redis://,h:1", "redis://h:1,i:x", "redis://h:1,i:65536"])
def test_each_node_needs_a_name_and_a_port(url: str) -> None:
    with pytest.raises(StartupError):
        parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "redis+sentinel://h",
            "redis+sentinel://h/",
            "redis+sentinel:///m",
            "redis+sentinel://h,/m",
            "redis+sentinel:h/m",
        ),
        *("redis+sentinel://h:0/m", "redis+sentinel://h:65536/m", "redis+sentinel://h:x/m", "redis+sentinel://::1/m"),
        *(
            "redis+sentinel://h/m/x",
            "redis+sentinel://h/m/1/2",
            "redis+sentinel://h/m/1?db=1",
            "redis+sentinel://h/m n",
        ),
        *("redis+sentinel://:s3cret#@h/m", "redis+sentinel://h/m?password=s3cret", "unix+sentinel://h/m"),
    ],
)
def test_an_invalid_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(StartupError, match="is not a URL of a store") as caught:
        parse_url(url)
    assert "s3c" not in str(caught.value) and "\n" not in str(caught.value)
