"""Who may use which client, users and what they did."""

from tracker.store.schema.table.row import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:whitelist:<prefix>",
        "HASH",
        "name: long client name; `<prefix>` begins the peer ids allowed when the allow-list is switched on. "
        "The key alone allows",
        "until deleted",
        "site, command line",
    ),
    KeySpec(
        "t:whitelist",
        "SET",
        "the prefixes; one that a site wrote is listed at its first use, or by the sweep",
        "for ever",
        "site, command line; adopt.lua",
    ),
    KeySpec(
        "t:i:client:<outcome>:<period>",
        "ZSET",
        "client programs by how often they joined a swarm or were refused: `<outcome>` is joins (`qBittorrent "
        "5.0.2`) or failures "
        "(`qBittorrent 5.0.2: unknown torrent`), `<period>` is all or `YYYY-MM` (UTC); at most 1,200 members, "
        "see clients.md",
        "for ever; a month until 13 months after its end",
        "software.lua",
    ),
    KeySpec(
        "t:user:<passkey>",
        "HASH",
        "user_id (1 to 15 digits, no 0 in front; one that is none, or another passkey's, is refused), enabled "
        "(0/1), can_leech (0/1); both "
        "1 when absent",
        "until deleted",
        "site, command line",
    ),
    KeySpec(
        "t:users",
        "ZSET",
        "passkey by user_id; a user that a site wrote is listed at the first join, or by the sweep",
        "for ever",
        "site, command line; announce.lua, adopt.lua",
    ),
    KeySpec(
        "t:user_id",
        "STRING",
        "the highest user id of less than 15 digits so far; a site that numbers users itself takes its ids "
        "from here (`INCR`)",
        "for ever",
        "command line; announce.lua, adopt.lua",
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
        "uploaded, downloaded (credited bytes), snatches, announces, passkey; unreported: the sum of what is "
        "above 0 of the accounts' below; "
        "credited_up, credited_down (epoch ms): up to when a line of `max_user_credit_bytes_per_second` has "
        "carried what was credited",
        "with the user",
        "announce.lua, adopt.lua, command line",
    ),
    KeySpec(
        "t:u:<uid>:t:<tid>",
        "HASH",
        "uploaded, downloaded (bytes as reported, without multipliers), total_time, seed_time (s), "
        "completed_at (epoch s), peers "
        "(active now); from, until: the stretch of time counted last; forgiven: what `downloaded` was when a "
        "hit and run there was "
        "forgiven; left: what the user's clients last said (bytes); unreported: by how many bytes `left` fell "
        "more than was downloaded "
        "(negative: less); credited (epoch ms): up to when a line of `max_credit_bytes_per_second` has "
        "carried what was credited; leeched: 1 when the user was a leecher there. "
        "Adds up over all peer ids of the user there",
        "with the user",
        "announce.lua, reap.lua, due.lua, sweep.lua, forgive.lua",
    ),
    KeySpec(
        "t:u:<uid>:<set>",
        "SET",
        "`<tid>`; `<set>` is active, complete, incomplete or hnr (hit and run)",
        "with the user",
        "announce.lua, reap.lua, due.lua, sweep.lua, forgive.lua, drop_hit_and_runs.lua",
    ),
    KeySpec(
        "t:i:hnr",
        "ZSET",
        "`<uid>` of every user with hit and runs, by how many: the size of `t:u:<uid>:hnr`",
        "as long as the user has any",
        "announce.lua, reap.lua, due.lua, sweep.lua, forgive.lua, drop_hit_and_runs.lua, "
        "rank_hit_and_runs.lua, delete_user.lua",
    ),
)
