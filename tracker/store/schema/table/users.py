"""Allowed and denied clients, client statistics, users and their totals."""

from tracker.store.schema.keys import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:whitelist:<prefix>",
        "HASH",
        "name: display name of the client. If the allow-list is on, peer ids that begin with `<prefix>` are allowed "
        "while this key exists",
        "until deleted",
        "site, command line",
    ),
    KeySpec(
        "t:whitelist",
        "SET",
        "the allowed prefixes. A prefix written by a site is added at its first use, or by the sweep",
        "permanent",
        "site, command line, adopt.lua",
    ),
    KeySpec(
        "t:denied_clients",
        "HASH",
        "peer-id prefix -> reason that clients show; empty: a default text. If the deny list of clients is on, peer "
        "ids that begin with a prefix are refused, also if they are allowed. At most 1,000 prefixes are read",
        "permanent",
        "site, command line",
    ),
    KeySpec(
        "t:i:client:<outcome>:<period>",
        "ZSET",
        "client programs; score: number of joins or refusals. `<outcome>` is joins (`qBittorrent 5.0.2`) or "
        "failures (`qBittorrent 5.0.2: unknown torrent`), `<period>` is all or `YYYY-MM` (UTC). At most 1,200 "
        "members; see clients.md",
        "all: permanent; a month: until 13 months after its end",
        "software.lua",
    ),
    KeySpec(
        "t:unlisted_clients",
        "HASH",
        "members that `t:i:client:<outcome>:all` does not have yet -> count, a space, digests of addresses (IPv6: "
        "/64s) that they came from (CRC-32, 8 hex digits each). A member that came from 3 is listed. At most 5,000, "
        "random ones make room",
        "until listed, at most 30 days after the last change",
        "software.lua",
    ),
    KeySpec(
        "t:user:<passkey>",
        "HASH",
        "user_id (1 to 15 digits, no leading 0), enabled (0/1), can_leech (0/1). enabled and can_leech are 1 if "
        "absent. reason: text that the clients of a disabled user show. Joins are refused if the user_id is invalid "
        "or belongs to another passkey. If set: "
        "upload_multiplier, download_multiplier (as `t:upload_multiplier`); max_downloads (torrents at once; 0: any "
        "number, empty: as many as the setting allows); hnr_exempt (1: no hit-and-runs); old_passkey, rotated: the "
        "passkey before the last rotation, and when it was replaced (epoch s): peers that use it may still stop",
        "until deleted",
        "site, command line",
    ),
    KeySpec(
        "t:upload_multiplier",
        "STRING",
        "how many times the upload of all users counts: up to 8 rules in 255 bytes, separated by a comma and a space. "
        "Each is a number from 0 to 1000, its end (epoch s) if it has one, and its name if it has one (`2 "
        "1800000000 donor, 1.5 group`). Of the rules of the torrent, the user and all users, the highest "
        "counts; nothing counts on a torrent with a 0 for upload and for download",
        "until replaced",
        "site, command line",
    ),
    KeySpec(
        "t:download_multiplier",
        "STRING",
        "the same for download (0: freeleech); the lowest counts",
        "until replaced",
        "site, command line",
    ),
    KeySpec(
        "t:users",
        "ZSET",
        "every passkey; score: user_id. A user written by a site is added at the first join, or by the sweep",
        "permanent",
        "site, command line, announce.lua, adopt.lua",
    ),
    KeySpec(
        "t:user_id",
        "STRING",
        "the highest user id so far, not counting ids of 15 digits. A site that assigns ids itself takes them from "
        "here (`INCR`)",
        "permanent",
        "command line, announce.lua, adopt.lua",
    ),
    KeySpec(
        "t:deleting",
        "SET",
        "`<uid>` of users being deleted. If a deletion was interrupted, any tracker continues it",
        "until all keys of the user are deleted",
        "delete_user.lua",
    ),
    KeySpec(
        "t:u:<uid>",
        "HASH",
        "totals of a user. uploaded, downloaded (credited bytes); snatches; announces (a process adds them every 10 s, "
        "as those of `t:t:<ih>`); credit_cut: bytes above the "
        "maximum rate, which were not credited; passkey; unreported: sum of "
        "the positive `unreported` in `t:u:<uid>:t:<tid>` (bytes); credited_up, credited_down: the times up to "
        "which `max_user_credit_bytes_per_second` is used up (epoch ms, plus all that the clock was set back, see "
        "`t:gap`); lists_l, lists_s: the budget of replies with peers of the user's leechers and seeders: the time up "
        "to which it is used up (epoch ms, as before), the day (since 1970) and the replies of that day; "
        "freeleech:<tid>: when the freeleech token for the torrent ends (epoch s); name: display name; "
        "listed: the name in `t:i:user_name`; under the main prefix of several shards base_<total>: the part of a "
        "total that is in no shard; connectable_at, unconnectable_at: when a client of the user last did and did not "
        "accept a connection of the tracker (epoch s)",
        "until the user is deleted",
        "announce.lua, adopt.lua, note_connectable.lua, freeleech.lua, command line",
    ),
    KeySpec(
        "t:i:user_name",
        "ZSET",
        "`<folded name>TAB<uid>` of every user with a name, score 0: in the order of the names",
        "while the user has the name. A name written by a site is listed by the sweep",
        "command line, name_users.lua, delete_user.lua",
    ),
    KeySpec(
        "t:i:user_<total>",
        "ZSET",
        "`<uid>` of every user; score: the user's total. `<total>` is uploaded, downloaded or ratio (uploaded / "
        "downloaded; inf without a download). disabled and blocked list only users who are disabled or may not "
        "download; score: the id. Written when a program changes the user, and by a job some minutes after announces "
        "and a site's own writes",
        "until the user is deleted",
        "rank_users.lua, command line, delete_user.lua",
    ),
    KeySpec(
        "t:u:<uid>:t:<tid>",
        "HASH",
        "totals of a user on a torrent, over all peer ids. uploaded, downloaded (bytes as reported, without "
        "multipliers); total_time, seed_time (s); completed_at (epoch s); peers: active ones; from, until: the "
        "period of time counted last (epoch s); forgiven: `downloaded` when a hit-and-run was forgiven; left: last "
        "reported by a client of the user (bytes); unreported: the decrease of `left` minus `downloaded` (bytes; "
        "may be negative); credited: the time up to which `max_credit_bytes_per_second` is used up (epoch ms, "
        "plus all that the clock was set back, see `t:gap`); credit_cut: as in `t:u:<uid>`; leeched: 1 if the user was "
        "ever a leecher; peer_ids: those of the last joins, 20 bytes each, where `max_peers_per_torrent` is set",
        "until the user is deleted",
        "announce.lua, reap.lua, due.lua, sweep.lua, forgive.lua",
    ),
    KeySpec(
        "t:completed:<tid>",
        "ZSET",
        "`<uid>` of the last users who completed the torrent; score: when (epoch s). Cut to 20 at every 20th snatch, "
        "so it holds fewer than 40. The id of a deleted user may remain; readers ignore it",
        "until the torrent is deleted",
        "announce.lua",
    ),
    KeySpec(
        "t:u:<uid>:<set>",
        "SET",
        "`<tid>` of the user's torrents; `<set>` is active, complete, incomplete or hnr (hit-and-run)",
        "until the user is deleted",
        "announce.lua, reap.lua, due.lua, sweep.lua, forgive.lua, drop_hit_and_runs.lua, decide_hit_and_runs.lua",
    ),
    KeySpec(
        "t:u:<uid>:freeleech",
        "ZSET",
        "`<tid>` of torrents whose download does not count for the user; score: until when (epoch s). Announces read "
        "the copy in `t:u:<uid>`. At most 1,000; those that have ended are removed at the next change",
        "until the user is deleted",
        "freeleech.lua",
    ),
    KeySpec(
        "t:u:<uid>:unregistered",
        "ZSET",
        "`<info_hash>` of torrents that the user announced and that were not registered; score: when first (epoch s). "
        "At most 100, of which the oldest makes room, and none older than 90 days; those that are registered by now "
        "are removed when the list is read",
        "90 days after the last new one, or until the user is deleted",
        "announce.lua, store/users/unregistered.py, delete_user.lua",
    ),
    KeySpec(
        "t:i:hnr_pending",
        "ZSET",
        "`<uid>:<tid>` of torrents that users have left and that become hit-and-runs; score: when (s on the steady "
        "clock, see `t:gap`)",
        "until the user comes back, or the end of the grace period",
        "announce.lua, reap.lua, due.lua, sweep.lua, decide_hit_and_runs.lua, forgive.lua, delete_user.lua",
    ),
    KeySpec(
        "t:i:hnr",
        "ZSET",
        "`<uid>` of every user with hit-and-runs; score: the size of `t:u:<uid>:hnr`",
        "while the user has any",
        "announce.lua, reap.lua, due.lua, sweep.lua, forgive.lua, drop_hit_and_runs.lua, "
        "rank_hit_and_runs.lua, decide_hit_and_runs.lua, delete_user.lua",
    ),
)
