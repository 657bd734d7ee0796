"""The key table: what is in the store, key by key. docs/keys.md is made from it, and a test holds the store against it.

``<ih>`` is an info hash and ``<pid>`` a peer id, each as 40 lowercase hex digits (raw ids may contain ``:``);
``<tid>`` is a decimal torrent id, ``<uid>`` a decimal user id.

The rows lie by theme beside this file.
"""

from tracker.store.schema.table import access, jobs, stats, swarms, unique_users, users
from tracker.store.schema.table.row import KeySpec

__all__ = ["KEYS", "KeySpec", "as_markdown"]

KEYS: tuple[KeySpec, ...] = (
    *swarms.ROWS,
    *users.ROWS,
    *stats.ROWS,
    *unique_users.ROWS,
    *jobs.ROWS,
    *access.ROWS,
)


def as_markdown() -> str:
    """docs/keys.md: the key table."""
    rows = "\n".join(f"| `{k.pattern}` | {k.type} | {k.holds} | {k.lifetime} | {k.writer} |" for k in KEYS)
    return f"""# Keys

What the tracker keeps in its store, key by key. The prefix `t:` is the setting `TRACKER_REDIS__PREFIX`. `<ih>` is an
info hash and `<pid>` a peer id, each as 40 lowercase hex digits; `<tid>` is a decimal torrent id, `<uid>` a decimal
user id.

| key | type | holds | lifetime | written by |
|---|---|---|---|---|
{rows}

A site may change `t:info_hash`, `t:deny`, `t:t`, `t:user` and `t:whitelist` by itself: all but the allow-list hold from
the very next announce. After a change of the allow-list, publish anything on `t:whitelist` and it holds at once;
without, within 5 seconds. Messages on `t:torrents` and `t:users` are welcome too; nothing is cached that they would
have to clear.
"""
