"""``tracker audit``, and that every command that changes something is in the audit log."""

import ast
import csv
import getpass
import importlib
import inspect
import io
import json
import textwrap
from collections.abc import Callable
from types import ModuleType
from typing import Any

import typer

from tests.commands import Command
from tests.store.harness import info_hash
from tracker.cli.commands import Traits
from tracker.cli.main import SECTIONS

HASH = info_hash(1).hex()
RECORDS = {"change_store", "change_of", "run_each", "renumber"}
READS = """
    audit backup changes client.denied client.list client.seen completion denied dht.find dht.hashes dht.ping
    dht.status doctor export freeleech.list geoip.lookup geoip.update group.list group.show health jobs.list
    jobs.queues jobs.show score.lag score.place score.top serve settings stats sync.check sync.run token.list top
    torrent.history torrent.list torrent.search torrent.show unique.figure unique.show unique.top user.list
    user.owing user.pending user.show user.torrents user.unregistered work.blocked work.drain work.list work.log
    work.policy work.projects work.seed work.show work.top
"""
"""Commands without an entry. ``work drain`` acknowledges what it has written; ``work seed`` belongs to volunteers."""


def entries(tracker: Command, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in tracker("audit", "--json", *options).stdout.splitlines()]


def newest(tracker: Command) -> dict[str, Any]:
    return entries(tracker, "--limit", "1")[0]


def commands() -> dict[str, Callable[..., Any]]:
    """The functions of all commands, by name: ``user.add``."""
    found = {}
    for section in SECTIONS.values():
        for name, entry in section.items():
            module, _, attribute = entry.where.partition(":")
            value = getattr(importlib.import_module(f"tracker.cli.commands.{module}"), attribute)
            if isinstance(value, typer.Typer):
                for each in value.registered_commands:
                    assert each.callback is not None
                    found[f"{name}.{each.name}"] = each.callback
            else:
                found[name] = value
    return found


def calls(function: Callable[..., Any]) -> set[str]:
    """The functions that it calls, and those that functions of its module call for it."""
    module = inspect.getmodule(function)
    assert isinstance(module, ModuleType)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    names = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    inner = (getattr(module, name) for name in names if inspect.isfunction(getattr(module, name, None)))
    return names.union(*(calls(each) for each in inner if each.__module__ == module.__name__ and each is not function))


def test_every_command_reads_only_or_is_recorded() -> None:
    unrecorded = {
        name
        for name, function in commands().items()
        if not getattr(inspect.unwrap(function), "traits", Traits()).audited and not calls(function) & RECORDS
    }
    assert unrecorded == set(READS.split())


def test_changes_by_commands_are_recorded(tracker: Command) -> None:
    for words, operation, objects, counts in (
        (("torrent", "add", HASH, "--name", "a"), "torrent.add", [f"torrent {HASH}"], {}),
        (("torrent", "edit", HASH, "--name", "b"), "torrent.edit", [f"torrent {HASH}"], {}),
        (("deny", HASH), "denial.add", [f"torrent {HASH}"], {}),
        (("allow", HASH), "denial.remove", [f"torrent {HASH}"], {}),
        (("user", "add", "--id", "7"), "user.add", ["user 7"], {}),
        (("user", "edit", "7", "--name", "Bob"), "user.edit", ["user 7"], {}),
        (("user", "rotate", "7"), "user.rotate", ["user 7"], {}),
        (("freeleech", "give", "7", HASH, "--until", "1d"), "freeleech.give", ["user 7", f"torrent {HASH}"], {}),
        (("user", "delete", "7", "--yes"), "user.delete", ["user 7"], {}),
        (("multipliers", "--upload", "2"), "multipliers.set", ["multipliers all"], {}),
        (("client", "allow", "-TR4"), "client.allow", ["client -TR4"], {}),
        (("client", "deny", "-qB"), "client.deny", ["client -qB"], {}),
        (("work", "create", "proj"), "project.create", ["project proj"], {}),
        (("work", "block", "proj", "eve"), "block.add", ["block proj/eve"], {}),
        (("work", "release", "proj", "--all"), "claims.release", ["project proj"], {"released": 0}),
        (("work", "delete", "proj", "--yes"), "project.delete", ["project proj"], {}),
        (("torrent", "remove", HASH), "torrent.remove", [f"torrent {HASH}"], {}),
        (("jobs", "purge", "--yes"), "jobs.purge", [], {"deleted": 0}),
        (("reindex",), "reindex", [], None),
        (("cleanup", "--delete", "--yes"), "cleanup", [], None),
        (("wipe-stats", "--yes"), "wipe_stats", [], None),
        (("unique", "flush", "--yes"), "uniques.flush", [], None),
        (("token", "sign-out"), "token.sign_out", [], {"signed_out": 0}),
        (("sign-in-link",), "token.sign_in_link", [], {}),
    ):
        tracker(*words)
        entry = newest(tracker)
        named = [f"{each['kind']} {each['id']}" for each in entry["objects"]]
        assert (entry["operation"], named) == (operation, objects)
        assert (entry["actor"], entry["role"], entry["way"]) == (getpass.getuser(), "admin", "cli")
        assert counts is None or entry["counts"] == counts


def test_reading_and_failed_commands_have_no_entry(tracker: Command) -> None:
    tracker("torrent", "list")
    tracker("multipliers")
    tracker("cleanup")
    tracker("torrent", "edit", HASH, "--name", "a", code=1)
    tracker("user", "edit", "7", "--name", "a", code=1)
    assert entries(tracker) == []


def test_one_call_is_one_entry_also_if_a_part_fails(tracker: Command) -> None:
    hashes = [info_hash(number).hex() for number in range(1, 21)]
    tracker("torrent", "add", *hashes, "nothing", code=1)
    found = entries(tracker)
    assert [each["id"] for entry in found for each in entry["objects"]] == hashes
    assert [entry["counts"] for entry in found] == [{"done": 20, "failed": 1}, {}]


def test_no_passkey_is_recorded(tracker: Command) -> None:
    passkey = "p" * 40
    tracker("user", "add", "--id", "7", "--passkey", passkey)
    tracker("user", "disable", passkey, "q" * 40, code=1)
    text = tracker("audit", "--json").stdout
    assert passkey not in text and "q" * 40 not in text
    assert [each["id"] for each in newest(tracker)["objects"]] == ["7"]


def test_an_import_is_one_entry_with_its_numbers(tracker: Command, tmp_path: Any) -> None:
    file = tmp_path / "users.csv"
    file.write_text("user_id,name\n1,a\n2,b\n")
    tracker("import", str(file), "--what", "users")
    tracker("import", str(file), "--what", "users", "--dry-run")
    (entry,) = entries(tracker)
    assert (entry["operation"], entry["counts"]) == ("import", {"user_added": 2})
    assert entry["details"] == {"files": str(file)}


def test_filters_of_a_call_are_recorded(tracker: Command) -> None:
    tracker("jobs", "purge", "--status", "failed", "--yes")
    assert newest(tracker)["details"] == {"status": "failed"}
    tracker("jobs", "reprocess", "--min-score", "2.5", "--max-seeders", "3")
    assert newest(tracker)["details"] == {"min_score": "2.5", "max_seeders": "3"}
    tracker("work", "create", "proj")
    tracker("work", "release", "proj", "--claimant", "eve", "--older-than", "2")
    assert newest(tracker)["details"] == {"claimant": "eve", "older_than_hours": "2.0"}
    assert "claimant: eve" in tracker("audit", "--limit", "1").stdout


def test_the_log_is_printed_filtered_and_exported(tracker: Command) -> None:
    tracker("torrent", "add", HASH, "--name", "old")
    tracker("torrent", "edit", HASH, "--name", "new")
    tracker("user", "add", "--id", "7")
    assert "name: old → new" in tracker("audit", "--operation", "torrent.edit").stdout
    assert [entry["operation"] for entry in entries(tracker, "--operation", "torrent")] == [
        "torrent.edit",
        "torrent.add",
    ]
    assert len(entries(tracker, "--object", "7")) == 1
    assert entries(tracker, "--way", "api") == entries(tracker, "--actor", "nobody") == []
    assert len(entries(tracker, "--since", "1d", "--until", "2100-01-01")) == 3
    for early in ("1d", "yesterday"):
        assert entries(tracker, "--until", early) == []
        assert len(entries(tracker, "--since", early)) == 3
    rows = list(csv.DictReader(io.StringIO(tracker("audit", "--csv").stdout)))
    assert [row["operation"] for row in rows] == ["user.add", "torrent.edit", "torrent.add"]
    assert tracker("audit", "--csv", "--actor", "nobody").stdout.startswith("id,at,actor")
    tracker("audit", "--way", "x", code=2)
    tracker("audit", "--csv", "--json", code=2)
