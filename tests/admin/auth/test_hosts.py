"""Names the admin port answers to, and origins it takes changes from, as pure decisions."""

import pytest
from multidict import CIMultiDict

from tracker.admin.hosts import Hosts
from tracker.admin.problems import Problem

HOSTS = Hosts(
    ("Tracker.Example", "[2001:db8::7]", "192.0.2.7"), ("127.0.0.1:6970", "[::1]:6970", "unix:/run/x")
)


def refusal(method: str = "GET", path: str = "/", **headers: str) -> int:
    """The status of the refusal, 0 for none."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        HOSTS.check(method, path, CIMultiDict(given))
    except Problem as problem:
        return problem.status
    return 0


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:6970",
        "127.0.0.1",
        "127.0.0.1:1",
        "[::1]:6970",
        "[0:0::1]",
        "[::ffff:127.0.0.1]:6970",
        "tracker.example",
        "tracker.example.:443",
        "[2001:DB8::7]:6970",
        "192.0.2.7",
    ],
)
def test_our_names(host: str) -> None:
    assert refusal(Host=host) == 0


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:6970",
        "127.0.0.2",
        "0.0.0.0",
        "[::]",
        "192.0.2.8",
        "user@localhost",
        "localhost@evil.example",
        "localhost/",
        "localhost:port",
        "localhost, evil.example",
        "[::1",
        "",
        "unix",
    ],
)
def test_names_that_are_not_ours(host: str) -> None:
    assert refusal(Host=host) == 421


def test_no_host_two_hosts_and_no_path_are_malformed() -> None:
    with pytest.raises(Problem, match="400"):
        HOSTS.check("GET", "/", CIMultiDict([("Host", "localhost"), ("Host", "evil.example")]))
    assert refusal() == 400
    assert refusal(path="http://evil.example/", Host="localhost") == 400


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:6970", "http://localhost:6970"),
        ("127.0.0.1:6970", "http://127.0.0.1:6970"),
        ("[::1]:6970", "http://[::1]:6970"),
        ("tracker.example", "https://tracker.example"),
        ("127.0.0.1:6970", "https://tracker.example"),
        ("127.0.0.1:6970", "https://tracker.example:443"),
        ("tracker.example:8443", "https://tracker.example:8443"),
        ("localhost", "http://localhost:80"),
    ],
)
def test_our_origins(host: str, origin: str) -> None:
    assert refusal("POST", Host=host, Origin=origin) == 0
    assert refusal("POST", Host=host, Origin=origin, Sec_Fetch_Site="same-origin") == 0


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:6970", "http://evil.example"),
        ("localhost:6970", "null"),
        ("localhost:6970", ""),
        ("localhost:6970", "http://localhost:8080"),
        ("localhost:6970", "http://localhost"),
        ("localhost:6970", "http://127.0.0.1:6970"),
        ("localhost:6970", "http://localhost:6970/"),
        ("localhost:6970", "http://localhost:6970, http://evil.example"),
        ("localhost:6970", "ftp://localhost:6970"),
        ("localhost:6970", "http://user@localhost:6970"),
        ("tracker.example", "https://tracker.example:8443"),
        ("127.0.0.1:6970", "https://tracker.example.evil.example"),
    ],
)
def test_origins_that_are_not_ours(host: str, origin: str) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        assert refusal(method, Host=host, Origin=origin) == 403
    assert (
        refusal("GET", Host=host, Origin=origin) == 0
    )  # it cannot be read from there, for nothing allows it


def test_the_address_a_connection_came_to_is_one_of_the_addresses_listened_on() -> None:
    HOSTS.check("GET", "/", CIMultiDict(Host="198.51.100.1:6970"), "198.51.100.1")
    with pytest.raises(Problem, match="421"):
        HOSTS.check("GET", "/", CIMultiDict(Host="198.51.100.1:6970"), "198.51.100.2")


def test_programs_send_no_origin() -> None:
    assert refusal("POST", Host="localhost") == 0


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("none", 0), ("odd", 403)]
)
def test_what_browsers_say_of_the_site(site: str, status: int) -> None:
    assert refusal("POST", Host="localhost", Sec_Fetch_Site=site) == status
    assert refusal("POST", Host="localhost", Origin="http://localhost", Sec_Fetch_Site=site) == status
