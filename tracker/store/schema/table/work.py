"""Work distribution: the keys of a project ``<p>``; ``<c>`` is a claimant: a user id in ``seeding``, else a name."""

from tracker.store.schema.keys import KeySpec

_CLAIMS = "work_claim.lua; work_done.lua, work_release.lua, work_lapse.lua delete"
_PROJECT = "until the project is deleted"
_QUEUES = (
    "work_add.lua, work_policy.lua, work_claim.lua, work_done.lua, work_release.lua, work_lapse.lua, "
    "work_purge.lua"
)

ROWS: tuple[KeySpec, ...] = (
    KeySpec("t:w", "SET", "the projects of work distribution", "for ever", "work_save.lua, work_delete.lua"),
    KeySpec(
        "t:w:blocked",
        "SET",
        "names, user ids, addresses and networks that get nothing in any project",
        "until unblocked",
        "Blocked in store/work",
    ),
    KeySpec(
        "t:work_bytes",
        "HASH",
        "UTC day (YYYY-MM-DD) -> bytes of the registered torrents with 0, 1 to 3, 4 to 10 and more seeders, separated "
        "by spaces, at the last walk of the day. Torrents of unknown size are left out",
        "400 days",
        "Sizes in store/work",
    ),
    KeySpec(
        "t:w:<p>",
        "HASH",
        "a project: kind (items or seeding), title, item_type, domains and upload_targets (JSON), min_version, "
        "per_minute, start_budget, "
        "budget, lease_seconds, verify, passkeys, order, lapsed_to_redo, block_wrong_domains, keep_done_days, public, "
        "target, seed_hours, claim_days, min_size, max_size; policy_at: where the next run of the policy continues; "
        "ranked: the id of the last entry of the log that is in leaderboards, charts and sums; deleting: 1 while it is "
        "being deleted",
        "until deleted",
        "work_save.lua, work_lapse.lua, work_claim.lua, work_extend.lua, work_policy.lua, work_rank.lua, "
        "work_delete.lua",
    ),
    KeySpec(
        "t:w:<p>:<todo>",
        "ZSET",
        "items to give out; score: the place (the lowest is first). `<todo>` is todo, todo:secondary or todo:redo",
        "until the last copy is claimed",
        _QUEUES,
    ),
    KeySpec(
        "t:w:<p>:todo:d:<c>",
        "ZSET",
        "the claimant's own queue, which is used first: items; score: the place",
        "until the last copy is claimed",
        _QUEUES,
    ),
    KeySpec(
        "t:w:<p>:asked",
        "HASH",
        "item -> the claimants in whose own queues it is",
        "while it is in one of them",
        _QUEUES,
    ),
    KeySpec(
        "t:w:<p>:wanted",
        "HASH",
        "item -> copies still to give out. An item without a field has one copy if it is in a queue, else none",
        "until the last copy is claimed",
        _QUEUES,
    ),
    KeySpec(
        "t:w:<p>:policy",
        "HASH",
        "item that the policy enqueued -> when the first users were asked to seed it again (epoch s); 0: none were. At "
        "most 200,000: those in `t:w:<p>:needs`, and torrents whose users were all asked",
        "until the torrent has enough seeders, or no user is to be asked, or a torrent shorter of seeders "
        "took its place",
        "work_policy.lua",
    ),
    KeySpec(
        "t:w:<p>:needs",
        "ZSET",
        "item that the policy wants; score: how short of seeders it is, the lowest most: 1000 times its average "
        "seeders, less its leechers, plus chance below 1; in `todo:secondary` plus 10^9. At most 100,000: a torrent "
        "shorter of seeders takes the place of the last one",
        "as in `t:w:<p>:policy`",
        "work_policy.lua",
    ),
    KeySpec(
        "t:w:<p>:holders", "HASH", "item -> the claimants who have it", "until their claims end", _CLAIMS
    ),
    KeySpec(
        "t:w:<p>:out",
        "ZSET",
        "`<item> <c>` of each claim; score: the end of its lease (ms on the steady clock, see `t:gap`)",
        "until the claim ends",
        _CLAIMS,
    ),
    KeySpec(
        "t:w:<p>:out:tokens",
        "HASH",
        "`<item> <c>` of each claim -> the token of its lease",
        "until the claim ends",
        "lease.lua",
    ),
    KeySpec(
        "t:w:<p>:claims",
        "HASH",
        "`<item> <c>` -> JSON: item, by, ip, at (epoch ms), queue, place, asked, shared (1: has more copies), version, "
        "state (claimed, seen or seeding); seed_time (s), uploaded and downloaded (bytes) of the account when it was "
        "claimed, others: `user_downloaded` of the torrent then, outage: by how much the clock was ahead of "
        "the steady clock then (ms); where addresses are verified, endpoint (packed, hex digits) and found: how long a "
        "seeder was seen there (ms); checked (epoch ms); of the last check: till (`until` of the account), progress "
        "(`downloaded` and `left`), moved and alive: when the progress last changed, and the last sign of life (ms on "
        "the steady clock); probe (confirmed, failed or unknown), probed (epoch ms), failures: the last connection to "
        "the claimant's seeder, and failures so far",
        "until the claim ends",
        f"work_verify.lua, work_probe.lua, {_CLAIMS}",
    ),
    KeySpec(
        "t:w:<p>:by:<c>",
        "ZSET",
        "the items that the claimant has; score: when it was claimed (epoch ms). Its size is the budget used",
        "until the claims end",
        _CLAIMS,
    ),
    KeySpec(
        "t:w:<p>:checks",
        "ZSET",
        "`<item> <c>` of each claim that is to be verified, also of those in `t:w:<p>:lapsed:claims`, by its last "
        "check (ms on the steady clock)",
        "until the claim ends, or is no longer kept",
        f"work_verify.lua, work_lapse.lua, {_CLAIMS}",
    ),
    KeySpec(
        "t:w:<p>:trust",
        "HASH",
        "`<c>` -> how many claims the claimant may have at once",
        "until the project is deleted. Of more than 100,000, those of claimants who never finished an item and have "
        "none are deleted",
        "work_done.lua, work_lapse.lua, work_claim.lua; work_trim.lua deletes",
    ),
    KeySpec(
        "t:w:<p>:released",
        "ZSET",
        "`<c>` who gave claims back; score: until when these count in the budget, one less each minute (epoch ms)",
        "until that time",
        "work_release.lua, work_done.lua; work_lapse.lua deletes",
    ),
    KeySpec(
        "t:w:<p>:looked",
        "HASH",
        "`<queue> <c>` -> the rank in the queue at which the claimant's next claim begins to look, if it can get none "
        "of the 1,000 items before",
        "until a claim has reached the end of the queue",
        "work_claim.lua",
    ),
    KeySpec(
        "t:w:<p>:lapsed",
        "ZSET",
        "`<item> <c>` of lapsed claims; score: when (epoch ms). The claimant does not get the item again",
        "7 days in `seeding`, else the newest 100,000",
        "work_lapse.lua, work_claim.lua; work_trim.lua deletes",
    ),
    KeySpec(
        "t:w:<p>:lapsed:claims",
        "HASH",
        "`<item> <c>` -> the lapsed claim, in a project that verifies. It may still be verified",
        "until it is verified, or its entry in `t:w:<p>:lapsed` is deleted",
        "work_lapse.lua, work_verify.lua, work_claim.lua, work_done.lua; work_trim.lua deletes",
    ),
    KeySpec(
        "t:w:<p>:done",
        "ZSET",
        "finished items; score: when (epoch ms)",
        "`keep_done_days` of the project (0: for ever)",
        "work_done.lua, work_add.lua; work_trim.lua, work_purge.lua delete",
    ),
    KeySpec(
        "t:w:<p>:done:by",
        "ZSET",
        "`<item> <c>` of finished claims; score: when (epoch ms)",
        "as `t:w:<p>:done`",
        "work_done.lua; work_trim.lua deletes",
    ),
    KeySpec(
        "t:w:<p>:totals",
        "HASH",
        "added (copies of all items, less those removed), claimed, done, lapsed, released, repaired (claims that ended "
        "because a site overwrote their record); at most 10 s late: bytes (reported), seconds (verified), unverified "
        "(finished claims that the tracker did not verify), took (s) and took_<bound>: sum and histogram of the times "
        "from claim to done; sliced_claimed, sliced_done, ...: the part of each that is in the counters "
        "`work.<p>.claimed`, `work.<p>.done`, ...",
        _PROJECT,
        f"{_QUEUES}, work_rank.lua",
    ),
    KeySpec(
        "t:w:<p>:log",
        "STREAM",
        "one entry for each finished claim: item, by, ip, ua, at (epoch ms), bytes (JSON by domain), total (bytes), "
        "seconds (verified), version, id, claimed (epoch ms), late (1: after the claim lapsed)",
        "the newest 100,000, and all that are not in leaderboards yet. If the log is drained, also all that are not "
        "drained yet",
        "work_done.lua; work_trim.lua deletes",
    ),
    KeySpec(
        "t:w:<p>:<board>",
        "ZSET",
        "claimants; score: finished items, reported bytes or verified seconds, at most 10 s late. `<board>` is "
        "downloader_count, downloader_bytes or downloader_seconds",
        _PROJECT,
        "work_rank.lua",
    ),
    KeySpec(
        "t:w:<p>:<board>:<span>",
        "ZSET",
        "the same of a UTC month (`YYYY-MM`) or ISO week (`YYYY-Www`)",
        "until 13 months or 13 weeks after its end",
        "work_rank.lua; work_trim.lua deletes",
    ),
    KeySpec(
        "t:w:<p>:downloader_version",
        "HASH",
        "`<c>` -> the version in the last report, at most 10 s late",
        _PROJECT,
        "work_rank.lua",
    ),
    KeySpec(
        "t:w:<p>:domain_bytes",
        "HASH",
        "domain -> reported bytes, at most 10 s late. If the project has no list of domains: the first 100 domains",
        _PROJECT,
        "work_rank.lua",
    ),
    KeySpec(
        "t:w:<p>:chart",
        "LIST",
        "the same as `t:w:<p>:chart:<c>`, of all claimants together",
        "as there",
        "work_rank.lua",
    ),
    KeySpec(
        "t:w:<p>:chart:<c>",
        "LIST",
        "`time items bytes seconds`: the claimant's totals at the end of a period of ten minutes, and the start of the "
        "period (epoch s). At most 10 s late",
        "the last 1,000, until 400 days after the last one",
        "work_rank.lua",
    ),
    KeySpec(
        "t:w:<p>:blocked",
        "SET",
        "names, user ids, addresses and networks that get nothing in this project",
        "until unblocked",
        "Blocked in store/work, work_done.lua",
    ),
    KeySpec(
        "t:w:<p>:blocked:log",
        "STREAM",
        "blocks, unblocks, and reports with wrong domains: at (epoch ms), what, who, ip, item, bytes",
        "about the last 1,000",
        "Blocked in store/work, work_done.lua",
    ),
    KeySpec(
        "t:w:<p>:rate",
        "STRING",
        "the time up to which the rate of the project is used up (epoch ms; GCRA)",
        _PROJECT,
        "work_claim.lua",
    ),
)
