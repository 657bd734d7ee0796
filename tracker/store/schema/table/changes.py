"""The change feed, and the webhooks that deliver it."""

from tracker.store.schema.keys import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:changes",
        "STREAM",
        "the change feed. change: joined, completed, stopped, reaped, removed (its user, client or torrent was "
        "refused), replaced (another peer took its place), "
        "hit_and_run, hit_and_run_pending, hit_and_run_cleared, hit_and_run_forgiven, or recounted (the sweep repaired "
        "the swarm); "
        "info_hash, torrent_id; "
        "user_id, peer_id (40 hex digits); uploaded, downloaded (bytes) and seed_time (s): sums of the user on the "
        "torrent, without multipliers, or what an anonymous peer reported; left (bytes); seeders, leechers: counts "
        "after the change. A field without a value is empty. The first part of an id is the time (epoch ms)",
        "about the newest `TRACKER_CHANGES__MAX_ENTRIES`; deleted while that is 0",
        "announce.lua, reap.lua, due.lua, sweep.lua, decide_hit_and_runs.lua, drop_hit_and_runs.lua, forgive.lua",
    ),
    KeySpec(
        "t:edits",
        "STREAM",
        "users and torrents that were added or changed by the API, the command line, the dashboard or an import, for "
        "lists with `updated_since`: user_id or info_hash, the other is empty. The first part of an id is the time "
        "(epoch ms)",
        "about the newest 100,000; recorded while there is a change feed, and deleted with it",
        "add_user.lua, edit_user.lua, rotate_user.lua, save_users.lua, add.lua, edit.lua, link.lua, "
        "unlink.lua, remove.lua, deny.lua, allow.lua",
    ),
    KeySpec(
        "t:webhook:<url>",
        "HASH",
        "deliveries to one URL; `<url>`: 16 hex digits of its SHA-256. position: the last change delivered; gap: 1 "
        "while the next batch has to tell that changes were lost; delivered: changes delivered; delivered_at (epoch "
        "s); gaps: how often changes were deleted before they were delivered; failures: failed deliveries since the "
        "last success; error: of the last one; retry_at (epoch s)",
        "30 days after the URL was last in the settings of a tracker",
        "hold_webhook.lua",
    ),
)
