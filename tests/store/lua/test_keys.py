"""Lists the keys that each script uses besides those of one torrent. A cluster that splits torrents needs this list.

The test reads the scripts: they build every key from the prefix ``P``, literals and values.
"""

import re

from loadtest.servers import ROOT
from tools.lint_lua import scripts
from tracker.store.client.scripts import source

TOKEN = r"'[^']*'|[A-Za-z_]\w*(?:\.\w+)*(?:\([^()]*\)|\[[^\]]*\])*"
KEY = re.compile(rf"\bP((?: \.\. (?:{TOKEN}))+)")
"""The prefix, then literals, names, calls and indexes."""

OF_A_TORRENT = frozenset(
    [
        "t:*",
        "info_hash:*",
        "deny:*",
        "torrent_id:*",
        "completed:*",
        "history:*",
        "tpeers:*",
        "swarm:*:",
        "swarm:*:l*",
        "swarm:*:s*",
        "addresses:*",
        "p:*",
        "p:*:*",
        "ptimeout:*",
        "ptimeout:*:*",
        "torrents.",
        "torrents.*.",
        "torrents.*.users",
        "hll:torrents.",
        "hll:torrents.*.users",
        "i:unique:torrents.*",
    ]
)
"""Their names contain an info hash or a torrent id."""

OF_A_PROJECT = "w:*"
"""All keys of a project of work distribution begin so."""

BEYOND: dict[str, str] = {
    "abandon": "job job:* lease q q:*: q:*:limits",
    "acknowledge": "lease leases:outbox outbox outbox:* outbox:waiting stats:outbox_dropped",
    "add": "changes edits i:* i:dht i:empty i:info_hash i:leechers i:name i:processed i:score "
    "i:seeders i:snatches i:torrent_* removing:torrents stats:* sweeping torrent_id "
    "torrents",
    "add_token": "admin:token:* admin:tokens",
    "adopt": "copies copies:rows copies:version deleting u:* user:* user_id users whitelist",
    "allow": "changes denied edits",
    "announce": "addresses addresses:full changed changes deleting dht:peers:* download_multiplier "
    "due:* gap groups heartbeat i:* i:empty i:hnr i:hnr_pending i:leechers i:processed "
    "i:score i:seeders i:snatches p:*:torrents removing secret stats:* stats:credit_cut "
    "sweeping u: u:* u:*:active u:*:hnr u:*:incomplete u:*:t:* u:*:unregistered updated "
    "upload_multiplier user: user:*",
    "audit": "audit audit:rows",
    "begin_removal": "groups removing u:*:active",
    "claim": "job job:* lease q q:*: q:*:limits",
    "clean": "count: dist: known: known:dist",
    "cleanup": "* i:seeders w",
    "collect": "lease leases:outbox outbox outbox:* outbox:waiting",
    "copy_users": "copied copies copies:rows copies:version deleting groups removing u:* u:*:active user:* user_id "
    "users",
    "count_announces": "changed u:*",
    "count": "count:* counted:* dist:* known: known:dist outbox outbox:* outbox:waiting stats:* stats:outbox_dropped",
    "count_before": "*",
    "count_hits": "limits limits:*",
    "count_unique": "countries.*.users hll:* i:unique:*:* i:unique:*:all outbox outbox:* outbox:waiting "
    "stats:outbox_dropped",
    "decide_hit_and_runs": "changed changes gap groups heartbeat i:hnr i:hnr_pending u:* u:*:hnr u:*:t:* user:*",
    "delete_user": "copies copies:rows copies:version deleting groups i:hnr i:hnr_pending i:user_* i:user_name "
    "removing u:* u:*:active user:* user_id users",
    "deny": "changes denied edits removing:torrents",
    "dht_note": "dht:peers:* i:dht",
    "dht_swarm": "removing swarm:*:*",
    "dht_page": "i:* i:dht",
    "drop_hit_and_runs": "changed changes groups i:hnr u:* u:*:hnr u:*:t:* user:*",
    "due": "addresses changed changes due:* gap groups heartbeat i:* i:empty i:hnr i:hnr_pending "
    "i:leechers i:processed i:score i:seeders i:snatches p:*:torrents stats:* sweeping u:* "
    "u:*:active u:*:hnr u:*:t:* user:*",
    "edit": "changes edits i:* i:name i:seeders removing:torrents",
    "edit_user": "changes copies copies:rows copies:version deleting edits groups i:* i:user_name once:* removing "
    "u:* u:*:active user:* user_id users",
    "end_removal": "deleting groups removing removing:torrents u:* u:*:active user:*",
    "enqueue": "job job:* lease q q:*: q:*:limits",
    "enqueue_slot": "job job:* lease q q:*: q:*:limits q:*:slot",
    "extend": "lease q:*:running",
    "finish": "job job:* lease q q:*: q:*:limits",
    "forget_markers": "* unique:forgotten",
    "forgive": "changed changes groups i:hnr i:hnr_pending u:* u:*:hnr u:*:t:* user:*",
    "freeleech": "deleting u:* users",
    "heartbeat": "gap heartbeat replication_id stats:* ws:processes",
    "hold_webhook": "lease leases:webhook webhook:*",
    "index": "denied i:* i:dht i:empty i:info_hash i:leechers i:name i:processed i:score i:seeders i:snatches "
    "i:torrent_* stats:* sweeping torrent_id",
    "link": "changes edits",
    "list_torrents": "i:*",
    "list_users": "i:hnr i:user_* u:* user:* users",
    "name_users": "i:user_name u:*",
    "hold_lease": "lease leases:*",
    "note_connectable": "connectable:* u:*",
    "note_users": "copies copies:rows copies:version deleting u:* user:* user_id users",
    "purge": "job job:* lease q q:*: q:*:limits",
    "raise_torrent_id": "torrent_id",
    "rank_hit_and_runs": "changed groups i:hnr u:* u:*:hnr u:*:t:* user:*",
    "rank_torrents": "i:* i:seeders",
    "read_torrents": "i:score",
    "register": "addresses copies copies:rows copies:version deleting dht:peers:* dht:peers:*:6 i:* i:dht i:empty "
    "i:info_hash i:leechers i:name i:processed i:score i:seeders i:snatches i:torrent_* i:unique:torrents: "
    "p:*:torrents registered_by:* removing:torrents stats:* sweeping torrent_id u:* user:* "
    "user_id users",
    "upgrade_swarms": "u:*:t:*",
    "save_history": "changed changes deleting edits groups i:hnr i:snatches u:* u:*:hnr u:*:t:* user:*",
    "remember_peers": "deleting u:*",
    "record_updates": "changes u:*:t:* updated",
    "read_users": "u:* user:* users",
    "rank_users": "i:* u:* user:* users",
    "reap": "addresses changed changes due:* gap groups heartbeat i:* i:empty i:hnr i:hnr_pending "
    "i:leechers i:processed i:score i:seeders i:snatches p:*:torrents stats:* sweeping u:* "
    "u:*:active u:*:hnr u:*:t:* user:*",
    "reindex": "denied i:* i:dht i:empty i:info_hash i:leechers i:name i:processed i:score i:seeders i:snatches "
    "i:torrent_* stats:* sweeping torrent_id",
    "remove": "changes dht:peers:* dht:peers:*:6 edits i:* i:dht i:empty i:info_hash i:leechers i:name "
    "i:processed i:score i:seeders i:snatches i:torrent_* i:unique:torrents: removing:torrents "
    "stats:* sweeping torrent_id",
    "reset_score": "i:processed i:score lease leases:torrents",
    "retry": "job job:* lease q q:*: q:*:limits",
    "rotate_user": "copies copies:rows copies:version changes deleting edits u:* user:* user_id users",
    "save_cursor": "job:* lease q:*:running",
    "save_group": "groups",
    "save_users": "changes copies copies:rows copies:version deleting edits groups i:* i:user_name once:* removing "
    "u:* u:*:active user:* user_id users",
    "score": "i:processed i:score lease leases:torrents",
    "scrape": "user:*",
    "set_rule": "changes copies copies:rows copies:version deleting download_multiplier edits u:* upload_multiplier "
    "user:* user_id users",
    "session": "admin:session:* admin:token:* admin:tokens",
    "sign_in": "admin:session: admin:sessions",
    "software": "counted:* i:client:*:* i:client:*:all i:client:joins:all unlisted_clients",
    "sum_users": "i:* i:hnr u:*",
    "sweep": "addresses changed changes deleting denied dht:peers:* dht:peers:*:6 due:* gap groups heartbeat "
    "i:* i:dht i:empty i:hnr i:hnr_pending i:info_hash i:leechers i:name i:processed i:score "
    "i:seeders i:snatches i:torrent_* i:unique:torrents: p:*:torrents removing:torrents stats:* "
    "sweeping torrent_id u:* u:*:active u:*:hnr u:*:t:* user:* ws:processes",
    "take": "i:processed i:score lease leases:torrents",
    "totals": "i:* stats:*",
    "unlink": "changes edits",
    "user_peers": "u:*:t:*",
    "work_add": "w:* w:blocked",
    "work_block": "w:* w:*:blocked w:*:blocked:log w:blocked",
    "work_claim": "deny:* gap heartbeat info_hash:* lease p:*:* swarm:*: t:* u:*:t:* w:* w:blocked",
    "work_delete": "count:* known: w w:*",
    "work_done": "lease w:* w:blocked",
    "work_extend": "gap heartbeat lease w:* w:blocked",
    "work_facts": "u:*:t:*",
    "work_lapse": "count:* gap heartbeat known: lease w:* w:blocked",
    "work_note": "i:score",
    "work_policy": "w:* w:blocked",
    "work_purge": "w:* w:blocked",
    "work_rank": "w:* w:blocked",
    "work_release": "lease w:* w:blocked",
    "work_save": "w w:*",
    "work_sizes": "i:seeders info_hash:",
    "work_trim": "w:* w:blocked",
    "work_probe": "lease w:* w:blocked",
    "work_verify": "gap heartbeat p:*:* swarm:*: t:* u:*:t:* w:* w:blocked",
}
"""Script -> keys, also those of shared functions that it includes and does not call. A key that ends in * or : stands
for all keys with this beginning.

``announce`` and ``sweep`` may also touch a second torrent: one that is deleted to make room, or that has the same id.
``cleanup``, ``count_before`` and ``forget_markers`` get key names as arguments: *.
"""


def keys_of(text: str) -> set[str]:
    """Returns the keys that a script builds, with * for each value."""
    code = re.sub(r"--.*", "", text)
    joined = (re.findall(TOKEN, expression) for expression in KEY.findall(code))
    return {"".join(part[1:-1] if part[0] == "'" else "*" for part in parts) for parts in joined}


def beyond_a_torrent(name: str) -> str:
    """A project is of no torrent: its scripts list those keys too."""
    keys = keys_of(source(name))
    return " ".join(sorted(keys if OF_A_PROJECT in keys else keys - OF_A_TORRENT))


def test_each_script_touches_the_listed_keys_beyond_those_of_a_torrent() -> None:
    found = {name: keys for name in sorted(scripts()) if (keys := beyond_a_torrent(name))}
    listed = {name: " ".join(sorted(keys.split())) for name, keys in BEYOND.items()}
    assert found == listed


def test_scripts_build_keys_from_the_prefix_only() -> None:
    """Else the test above would overlook some: each use of the prefix is a key, its length, a "
    "comparison with it, or
    the question of which shard it is."""
    for name in scripts():
        code = re.sub(r"--.*", "", source(name))
        rest = re.sub(
            r"local P\b.*|#P\b|~= P\b|(?:\bP and )?string\.(?:find|match)\(P, '[^']*'\)", "", KEY.sub("", code)
        )
        if name == "announce":  # a library of functions gets the prefix with each call
            rest = re.sub(r"\bP = prefix\b|\bnames_of\[P\]|return announce\(KEYS, ARGV\)", "", rest)
        assert not re.search(r"\bP\b|\bKEYS\b", rest), name


def test_values_and_literals_of_a_key_are_told_apart() -> None:
    text = "call('GET', P .. 'u:' .. uid .. ':hnr') -- P .. 'comment'\nlocal a = P .. ARGV[i + 1] .. 'x'"
    assert keys_of(text) == {"u:*:hnr", "*x"}


def test_pages_name_scripts_that_exist() -> None:
    known = {file.name for file in (ROOT / "tracker").rglob("*.lua")}
    for page in (ROOT / "docs").rglob("*.md"):
        assert set(re.findall(r"\b[a-z0-9_]+\.lua\b", page.read_text())) <= known, page.name
