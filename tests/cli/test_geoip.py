"""``tracker geoip``, in this process and as an operator runs it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest import trackers
from loadtest.geoip_databases import make_city
from tests.commands import Command, command, set_store


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the database in the settings. There is no store."""
    set_store(monkeypatch, "redis://127.0.0.1:1/0")
    monkeypatch.setenv("TRACKER_GEOIP__DATABASE", str(tmp_path / "places.mmdb"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "places.mmdb"


@pytest.fixture
def lookup() -> Iterator[Command]:
    with command("geoip", "lookup") as run:
        yield run


def test_places_are_shown_line_by_line(path: Path, lookup: Command) -> None:
    make_city(path)
    result = lookup("192.0.2.1", "2001:DB8:2:0::1", "203.0.113.1", "10.0.0.1")
    assert result.stdout.splitlines() == [
        "192.0.2.1\tGB\tENG\tLondon\tSW1A",
        "2001:db8:2::1\tUS\tIL\tSpringfield\t62701",
        "203.0.113.1\t\t\tPoseidonis\t",
        "10.0.0.1\t\t\t\t",
    ]
    assert result.stderr == ""


def test_places_are_shown_as_json(path: Path, lookup: Command) -> None:
    make_city(path)
    known, unknown = (json.loads(line) for line in lookup("--json", "192.0.2.1", "::1").stdout.splitlines())
    assert known == {
        "address": "192.0.2.1",
        "country": "GB",
        "subdivision": "ENG",
        "city": "London",
        "postcode": "SW1A",
    }
    assert unknown == {"address": "::1", "country": None, "subdivision": None, "city": None, "postcode": None}


def test_an_invalid_address_is_reported_and_the_others_shown(path: Path, lookup: Command) -> None:
    make_city(path)
    result = lookup("bogus", "192.0.2.1", "1.2.3", code=1)
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == ["192.0.2.1"]
    assert result.stderr.splitlines() == [
        "error: bogus: not an IPv4 or IPv6 address",
        "error: 1.2.3: not an IPv4 or IPv6 address",
    ]
    assert lookup("bogus", "--json", code=1).stdout == ""


def test_place_names_are_escaped(path: Path, lookup: Command) -> None:
    make_city(path, {"192.0.2.0/24": {"city": {"names": {"en": "a\x1b[2J\nb\u202e"}}}})
    assert lookup("192.0.2.1").stdout == "192.0.2.1\t\t\ta [2J b\t\n"


def test_without_a_database_there_is_one_error_line(
    path: Path, lookup: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lookup("192.0.2.1", code=1).stderr == f"error: {path}: No such file or directory\n"
    path.write_bytes(b"an error page")
    assert "not a MaxMind DB file" in lookup("192.0.2.1", code=1).stderr
    monkeypatch.delenv("TRACKER_GEOIP__DATABASE")
    (line,) = lookup("192.0.2.1", code=1).stderr.splitlines()
    assert line == "error: no GeoIP database: set TRACKER_GEOIP__DATABASE"
    assert "Usage: " in lookup(code=2).stderr


def test_a_lookup_needs_and_creates_no_store(tmp_path: Path) -> None:
    database = make_city(tmp_path / "places.mmdb")
    result = trackers.run(tmp_path, "geoip", "lookup", "192.0.2.1", TRACKER_GEOIP__DATABASE=str(database))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "192.0.2.1\tGB\tENG\tLondon\tSW1A\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["places.mmdb"]
