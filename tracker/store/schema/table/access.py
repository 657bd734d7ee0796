"""Tokens, sessions and sign-in links of the admin port, and the audit log."""

from tracker.store.schema.keys import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:admin:tokens",
        "ZSET",
        "ids of the admin tokens; score: last use (epoch s, to the minute; 0: never)",
        "permanent",
        "command line, admin API; the admin port records uses",
    ),
    KeySpec(
        "t:admin:token:<token>",
        "HASH",
        "name, role (read, operate, admin), hash (SHA-256 of the token, in hex), created (epoch s); if it has them, "
        "expires (epoch s) and addresses (networks, separated by spaces)",
        "until revoked",
        "command line, admin API",
    ),
    KeySpec(
        "t:admin:sessions",
        "ZSET",
        "`<digest>` of every session; score: its end (epoch s)",
        "permanent; ended sessions are removed at the next sign-in",
        "sign_in.lua, sign-out",
    ),
    KeySpec(
        "t:admin:session:<digest>",
        "HASH",
        "a session of a browser. name, role, csrf (token that its forms must send), token (id of the token that "
        "signed in; empty: a link), ends (epoch s). `<digest>` is the SHA-256 of the cookie, in hex",
        "until signed out, at most `session_seconds`",
        "sign_in.lua, sign-out",
    ),
    KeySpec(
        "t:admin:link:<digest>",
        "STRING",
        "when the one-time sign-in link expires (epoch s). `<digest>` is the SHA-256 of its secret, in hex",
        "until its first use, at most 15 minutes",
        "tracker, command line",
    ),
    KeySpec(
        "t:audit",
        "STREAM",
        "the audit log: changes by the API, the dashboard and the command line. actor (name of the token, `sign-in "
        "link`, or user of the operating system), token (its id; empty: none), role, way (api, dashboard, cli), "
        "address, operation, objects (JSON: kind, id, and the changed fields before and after), counts, details "
        "(JSON). The first part of an id is the time (epoch ms)",
        "a year, at most `TRACKER_ADMIN__AUDIT_ENTRIES` entries",
        "audit.lua",
    ),
    KeySpec(
        "t:audit:rows",
        "STREAM",
        "further entries of the audit log: those of a call that changes more than 10 objects, without counts. Each has "
        "up to 50 of the other objects. The second part of an id is 1000000 or more",
        "a year, at most a tenth of `TRACKER_ADMIN__AUDIT_ENTRIES` entries",
        "audit.lua",
    ),
)
