"""The key table: every key in the store. docs/keys.md is generated from it, and a test compares a store with it.

``<ih>`` is an info hash and ``<pid>`` a peer id, each as 40 lowercase hex digits (raw ids may contain ``:``);
``<tid>`` is a decimal torrent id, ``<uid>`` a decimal user id.

Each file beside this one holds the rows of one subject.
"""

from tracker.store.schema.keys import KeySpec
from tracker.store.schema.table import access, changes, dht, jobs, stats, swarms, unique_users, users, work

__all__ = ["KEYS", "KeySpec", "as_markdown"]

KEYS: tuple[KeySpec, ...] = (
    *swarms.ROWS,
    *users.ROWS,
    *changes.ROWS,
    *stats.ROWS,
    *unique_users.ROWS,
    *jobs.ROWS,
    *access.ROWS,
    *work.ROWS,
    *dht.ROWS,
)


def as_markdown() -> str:
    """docs/keys.md: the key table."""
    rows = "\n".join(f"| `{k.pattern}` | {k.type} | {k.holds} | {k.lifetime} | {k.writer} |" for k in KEYS)
    return f"""# Keys

Every key that the tracker stores. The prefix `t:` is the setting `TRACKER_REDIS__PREFIX`. `<ih>` is an info hash and
`<pid>` a peer id, each as 40 lowercase hex digits. `<tid>` is a decimal torrent id, `<uid>` a decimal user id. `<p>` is
a project of work distribution, `<c>` its claimant: a user id or a name. `epoch s` and `epoch ms` are seconds and
milliseconds since 1970. A score is that of a sorted set.

| key | type | holds | lifetime | written by |
|---|---|---|---|---|
{rows}

A site may change `t:info_hash`, `t:deny`, `t:t`, `t:user`, `t:whitelist` and `t:denied_clients` itself. Changes apply
from the next announce, except those of the last two, which the tracker caches for up to 5 seconds. Publish any message
on `t:whitelist` to apply a change of either list at once. Messages on `t:torrents` and `t:users` are allowed but not
needed: the tracker caches neither torrents nor users.
"""
