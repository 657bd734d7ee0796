"""Validation of host names and origins, without sockets."""

import pytest
from multidict import CIMultiDict

from tracker.admin.auth.auth import Hosts
from tracker.admin.http.problems import Problem

HOSTS = Hosts(("Tracker.Example", "[2001:db8::7]", "192.0.2.7"), ("127.0.0.1:6970", "[::1]:6970", "unix:/run/x"))


def refusal(method: str = "GET", path: str = "/", **headers: str) -> int:
    """The status of the refusal; 0 if accepted."""
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
def test_valid_host_names_are_accepted(host: str) -> None:
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
def test_unknown_host_names_are_refused(host: str) -> None:
    assert refusal(Host=host) == 421


def test_missing_and_repeated_hosts_and_missing_paths_are_malformed() -> None:
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
def test_valid_origins_are_accepted(host: str, origin: str) -> None:
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
def test_unknown_origins_are_refused(host: str, origin: str) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        assert refusal(method, Host=host, Origin=origin) == 403
    assert (
        refusal("GET", Host=host, Origin=origin) == 0
    )  # the other site cannot read the response: there is no CORS header


def test_the_local_address_of_a_wildcard_listener_is_accepted() -> None:
    HOSTS.check("GET", "/", CIMultiDict(Host="198.51.100.1:6970"), "198.51.100.1")
    with pytest.raises(Problem, match="421"):
        HOSTS.check("GET", "/", CIMultiDict(Host="198.51.100.1:6970"), "198.51.100.2")


def test_requests_without_an_origin_are_accepted() -> None:
    assert refusal("POST", Host="localhost") == 0


@pytest.mark.parametrize(("site", "status"), [("cross-site", 403), ("same-site", 403), ("none", 0), ("odd", 403)])
def test_sec_fetch_site_decides_about_cross_site_requests(site: str, status: int) -> None:
    assert refusal("POST", Host="localhost", Sec_Fetch_Site=site) == status
    assert refusal("POST", Host="localhost", Origin="http://localhost", Sec_Fetch_Site=site) == status
