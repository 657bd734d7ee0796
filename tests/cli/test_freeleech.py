"""``tracker freeleech``."""

import json

from tests.commands import Command
from tests.store.harness import info_hash

HASH = info_hash(1).hex()


def test_tokens_are_given_listed_and_revoked(tracker: Command) -> None:
    tracker("torrent", "add", HASH, "--name", "a film")
    tracker("user", "add", "--id", "7")
    tracker("freeleech", "give", "7", HASH, "--until", "2100-01-01")
    row = json.loads(tracker("freeleech", "list", "7", "--json").stdout)
    assert (row["info_hash"], row["name"], row["until"]) == (HASH, "a film", 4102444800)
    assert "2100-01-01T00:00:00Z" in tracker("freeleech", "list", "7").stdout
    tracker("freeleech", "revoke", "7", HASH)
    assert "has no token" in tracker("freeleech", "revoke", "7", HASH, code=1).stderr
    assert tracker("freeleech", "list", "7").stdout == ""


def test_unknown_users_torrents_and_past_ends_are_refused(tracker: Command) -> None:
    assert "unknown torrent" in tracker("freeleech", "give", "7", HASH, "--until", "1d", code=1).stderr
    tracker("torrent", "add", HASH)
    assert "no such user" in tracker("freeleech", "give", "7", HASH, "--until", "1d", code=1).stderr
    tracker("user", "add", "--id", "7")
    assert "in the future" in tracker("freeleech", "give", "7", HASH, "--until", "2020-01-01", code=1).stderr
    assert "a time is" in tracker("freeleech", "give", "7", HASH, "--until", "soon", code=1).stderr


def test_a_token_for_the_v2_half_of_a_hybrid_torrent_is_one_for_its_v1_half(tracker: Command) -> None:
    v1 = info_hash(2).hex()
    tracker("torrent", "add", HASH, v1)
    tracker("torrent", "edit", HASH, "--hybrid-of", v1)
    tracker("user", "add", "--id", "7")
    tracker("freeleech", "give", "7", HASH, "--until", "2100-01-01")
    assert json.loads(tracker("freeleech", "list", "7", "--json").stdout)["info_hash"] == v1
    tracker("freeleech", "revoke", "7", HASH)
