"""Who may use which client, users and what they did."""

from tracker.store.key_table.row import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:whitelist:<prefix>",
        "HASH",
        "name: long client name; `<prefix>` begins the peer ids allowed when the allow-list is switched on",
        "until deleted",
        "site, command line",
    ),
    KeySpec("t:whitelist", "SET", "the prefixes", "for ever", "site, command line"),
    KeySpec(
        "t:i:client:<outcome>:<period>",
        "ZSET",
        "client programs by how often they joined a swarm or were refused: `<outcome>` is joins (`qBittorrent 5.0.2`) or failures "
        "(`qBittorrent 5.0.2: unknown torrent`), `<period>` is all or `YYYY-MM` (UTC); at most 1,200 members, see clients.md",
        "for ever; a month until 13 months after its end",
        "software.lua",
    ),
    KeySpec(
        "t:user:<passkey>",
        "HASH",
        "user_id, enabled (0/1), can_leech (0/1)",
        "until deleted",
        "site, command line",
    ),
    KeySpec("t:users", "ZSET", "passkey by user_id", "for ever", "site, command line"),
    KeySpec(
        "t:user_id",
        "STRING",
        "the last user id given out (ids in use are skipped)",
        "for ever",
        "command line",
    ),
    KeySpec(
        "t:deleting",
        "SET",
        "`<uid>` of users whose deletion has begun; whoever finds one there goes on with it",
        "until nothing is left of the user",
        "delete_user.lua",
    ),
    KeySpec(
        "t:u:<uid>",
        "HASH",
        "uploaded, downloaded (credited bytes), snatches, announces, passkey",
        "with the user",
        "announce.lua, command line",
    ),
    KeySpec(
        "t:u:<uid>:t:<tid>",
        "HASH",
        "uploaded, downloaded (bytes as reported, without multipliers), total_time, seed_time (s), completed_at (epoch s), peers "
        "(active now); from, until: the stretch of time counted last; forgiven: what `downloaded` was when a hit and run there was "
        "forgiven. Adds up over all peer ids of the user there",
        "with the user",
        "announce.lua, reap.lua, due.lua, sweep.lua, forgive.lua",
    ),
    KeySpec(
        "t:u:<uid>:<set>",
        "SET",
        "`<tid>`; `<set>` is active, complete, incomplete or hnr (hit and run)",
        "with the user",
        "announce.lua, reap.lua, due.lua, sweep.lua, forgive.lua",
    ),
    KeySpec(
        "t:i:hnr",
        "ZSET",
        "`<uid>` of every user with hit and runs, by how many: the size of `t:u:<uid>:hnr`",
        "as long as the user has any",
        "announce.lua, reap.lua, due.lua, sweep.lua, forgive.lua, rank_debts.lua, delete_user.lua",
    ),
)
