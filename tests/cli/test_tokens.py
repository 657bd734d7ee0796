"""``tracker token`` and ``tracker sign-in-link`` on a real store."""

import json
from datetime import UTC, datetime

import pytest
from redis import Redis

from loadtest.servers import Server
from tests.commands import Command
from tracker.cli.commands.tokens import sign_in_urls
from tracker.cli.terminal import Moment
from tracker.settings.site import AdminSettings


def everything(client: "Redis", prefix: str) -> bytes:
    """All keys and values in the store."""
    found = b""
    for key in client.scan_iter(f"{prefix}*", 1000):
        found += key + bytes(client.dump(key) or b"")
    return found


def test_a_token_is_created_listed_and_revoked(tracker: Command) -> None:
    made = json.loads(tracker("token", "create", "site", "--json").stdout)
    assert made["token"].startswith(f"swk_{made['id']}_") and made["role"] == "admin"
    reader = json.loads(tracker("token", "create", "prometheus", "--read-only", "--json").stdout)
    assert reader["role"] == "read"
    listed = [json.loads(line) for line in tracker("token", "list", "--json").stdout.splitlines()]
    assert sorted(row["name"] for row in listed) == ["prometheus", "site"]
    assert all("token" not in row for row in listed)
    assert tracker("token", "revoke", "site").stdout == f"revoked {made['id']} site\n"
    assert tracker("token", "revoke", reader["id"]).stdout == f"revoked {reader['id']} prometheus\n"
    assert tracker("token", "list").stdout == ""


def test_a_token_is_limited_in_time_and_to_addresses(tracker: Command) -> None:
    options = ("--role", "operate", "--expires", "2100-01-01", "--address", "192.0.2.7", "--address", "::/0")
    made = json.loads(tracker("token", "create", "site", *options, "--json").stdout)
    assert (made["role"], made["expires"]) == ("operate", 4_102_444_800)
    assert made["addresses"] == "192.0.2.7/32 ::/0"
    (listed,) = tracker("token", "list", "--json").stdout.splitlines()
    assert json.loads(listed).items() <= made.items()
    tracker("token", "create", "x", "--role", "full", code=2)
    tracker("token", "create", "x", "--role", "operate", "--read-only", code=2)
    assert "future" in tracker("token", "create", "x", "--expires", "1999-01-01", code=1).stderr
    assert "network" in tracker("token", "create", "x", "--address", "home", code=1).stderr


def test_mistakes_are_one_error_line(tracker: Command) -> None:
    tracker("token", "create", "site")
    assert tracker("token", "create", "site", code=1).stderr == "error: a token with this name exists\n"
    assert tracker("token", "revoke", "nobody", code=1).stderr == "error: there is no such token\n"
    assert "1 to 64 printable characters" in tracker("token", "create", "a\nb", code=1).stderr


def test_the_stored_data_of_a_token_grants_no_access(tracker: Command, valkey: Server, prefix: str) -> None:
    token = json.loads(tracker("token", "create", "site", "--json").stdout)["token"]
    link = tracker("sign-in-link").stdout.strip().partition("#")[2]
    assert len(link) == 43
    with valkey.client() as client:
        kept = everything(client, prefix)
    for secret in (token, token.split("_", 2)[2], link):
        assert secret.encode() not in kept


def test_a_link_without_an_admin_port_has_a_note(tracker: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracker("sign-in-link").stderr == ""
    monkeypatch.setenv("TRACKER_ADMIN__ENABLED", "false")
    done = tracker("sign-in-link")
    assert "TRACKER_ADMIN__ENABLED" in done.stderr and "/sign-in#" in done.stdout


def test_times_are_dates_in_text_and_numbers_in_json(tracker: Command) -> None:
    created = json.loads(tracker("token", "create", "site", "--json").stdout)["created"]
    date = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert date in tracker("token", "list").stdout
    assert json.loads(tracker("token", "list", "--json").stdout)["created"] == created
    assert str(Moment(2**63)) == str(2**63)


def test_sign_out_ends_all_browser_sessions(tracker: Command) -> None:
    assert tracker("token", "sign-out").stdout == "signed out: 0\n"


def test_a_link_is_printed_for_every_address() -> None:
    admin = AdminSettings(
        listen=("127.0.0.1:6970", "[::1]:6970", "unix:/run/x", "127.0.0.1:0"), hosts=("tracker.example",)
    )
    assert sign_in_urls(admin, "s") == [
        "https://tracker.example/sign-in#s",
        "http://127.0.0.1:6970/sign-in#s",
        "http://[::1]:6970/sign-in#s",
    ]
    assert sign_in_urls(AdminSettings(listen=("unix:/run/x",)), "s") == ["/sign-in#s"]


def test_container_names_come_last() -> None:
    admin = AdminSettings(listen=("127.0.0.1:6970",), hosts=("tracker", "192.0.2.7", "tracker.example"))
    assert sign_in_urls(admin, "s") == [
        "https://tracker.example/sign-in#s",
        "http://127.0.0.1:6970/sign-in#s",
        "https://tracker/sign-in#s",
        "https://192.0.2.7/sign-in#s",
    ]


def test_the_configured_url_comes_first(tracker: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_ADMIN__URL", "https://desk.example:8443/")
    monkeypatch.setenv("TRACKER_ADMIN__HOSTS", "tracker.example")
    assert tracker("sign-in-link").stdout.startswith("https://desk.example:8443/sign-in#")
    assert json.loads(tracker("sign-in-link", "--json").stdout)["link"].startswith("https://desk.example:8443/")
