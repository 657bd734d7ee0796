"""``tracker group``, and the group of a user."""

import json

from tests.commands import Command


def test_groups_are_set_shown_and_deleted(tracker: Command) -> None:
    tracker("group", "set", "20", "--name", "vip", "--download-multiplier", "0", "--until", "2030-01-01")
    tracker("group", "set", "20", "--max-downloads", "8")
    tracker("group", "set", "3", "--no-may-announce")
    assert json.loads(tracker("group", "show", "20", "--json").stdout) == {
        "group_id": 20,
        "name": "vip",
        "may_announce": True,
        "can_leech": True,
        "max_downloads": 8,
        "upload_multiplier": "1",
        "upload_multiplier_until": None,
        "download_multiplier": "0",
        "download_multiplier_until": 1893456000,
        "hnr_exempt": False,
    }
    found = [json.loads(line) for line in tracker("group", "list", "--json").stdout.splitlines()]
    assert [(row["group_id"], row["may_announce"]) for row in found] == [(3, False), (20, True)]
    assert "deleted group 3" in tracker("group", "delete", "3").stdout
    assert "there is no such group" in tracker("group", "delete", "3", code=1).stderr
    assert "max_downloads is a whole number" in tracker("group", "set", "3", "--max-downloads", "x", code=1).stderr
    assert "group.set" in tracker("audit").stdout and "group.delete" in tracker("audit").stdout


def test_a_user_has_a_group(tracker: Command) -> None:
    tracker("user", "add", "--id", "7", "--group", "20")
    assert json.loads(tracker("user", "show", "7", "--json").stdout)["group"] == 20
    tracker("user", "edit", "7", "--group", "-1")
    assert json.loads(tracker("user", "show", "7", "--json").stdout)["group"] is None
