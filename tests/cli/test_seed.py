"""``tracker work seed`` as a command: its options and what it refuses. tests/volunteer shows what it does."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

from tests.commands import Command, command
from tests.volunteer.work_server import PASSKEY
from tracker.volunteer.loop import open_state

URL = "http://127.0.0.1:9/seeding"
VARIABLE = "SWARMKEEPER_PASSKEY"


@pytest.fixture
def seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv(VARIABLE, PASSKEY)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with command("work", "seed") as run:
        yield run


def options(client: str, url: str = URL, space: str = "1MB") -> tuple[str, ...]:
    return ("--url", url, "--client", client, "--space", space)


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        ("qbittorrent://user:secret@127.0.0.1:1", "a password does not belong into --client"),
        ("deluge://127.0.0.1:1", "--client is "),
        ("qbittorrent://127.0.0.1:x", "--client is "),
        ("qbittorrent:", "--client is "),
        ("internal://host/x", "internal is written"),
        ("internal:", "internal is written"),
        ("internal:/x?enable_dht=maybe", "--client has a setting"),
        ("internal:/x?unknown=1", "--client has a setting"),
        ("internal:/x?connections_limit=many", "--client has a setting"),
        ("transmission+ssh://127.0.0.1:1", "--client is "),
    ],
)
def test_a_client_that_cannot_be_used_is_refused(seed: Command, client: str, reason: str) -> None:
    result = seed(*options(client), code=1)
    assert result.stderr.startswith(f"error: {reason}")
    assert "secret" not in result.output


@pytest.mark.parametrize("url", ["ftp://x/y", "https://user@x/y", "https://x/y?passkey=z", "https://x:y/z", "x"])
def test_a_url_that_is_no_project_is_refused(seed: Command, tmp_path: Path, url: str) -> None:
    assert "--url is written" in seed(*options(f"internal:{tmp_path}", url), code=1).stderr


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--name", "ada_1"), "belong together"),
        (("--port", "6881"), "belong together"),
        (("--name", "a b", "--port", "6881"), "3 to 30 letters"),
    ],
)
def test_a_name_needs_a_port(seed: Command, tmp_path: Path, more: tuple[str, ...], reason: str) -> None:
    assert reason in seed(*options(f"internal:{tmp_path}"), *more, code=2).stderr


def test_with_a_name_no_passkey_is_read(seed: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tracker is not there; it would be asked."""
    monkeypatch.delenv(VARIABLE)
    named = ("--name", "ada_1", "--port", "6881", "--once")
    assert "the tracker does not answer" in seed(*options(f"internal:{tmp_path}"), *named, code=1).stderr


@pytest.mark.parametrize("space", ["much", "-1", "1XB"])
def test_a_space_that_is_no_size_is_wrong_usage(seed: Command, tmp_path: Path, space: str) -> None:
    seed(*options(f"internal:{tmp_path}", space=space), code=2)


def test_a_passkey_is_needed(seed: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    assert "no passkey" in seed(*options(f"internal:{tmp_path}"), code=1).stderr
    (tmp_path / "passkey").write_text("one\ntwo\n")
    more = ("--passkey-file", str(tmp_path / "passkey"))
    assert "one line" in seed(*options(f"internal:{tmp_path}"), *more, code=1).stderr


def test_a_tracker_that_is_not_there_ends_a_single_round(seed: Command, tmp_path: Path) -> None:
    (tmp_path / "passkey").write_text(f"{PASSKEY}\n")
    more = ("--once", "--passkey-file", str(tmp_path / "passkey"))
    result = seed(*options(f"internal:{tmp_path}/data"), *more, code=1)
    assert result.stderr.splitlines()[-1].startswith("error: the tracker does not answer")


def test_a_state_file_has_one_user(seed: Command, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    with open_state(path):
        result = seed(*options(f"internal:{tmp_path}/data"), "--once", "--state", str(path), code=1)
    assert "another process uses" in result.stderr
