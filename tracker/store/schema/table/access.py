"""Who may use the admin side."""

from tracker.store.schema.table.row import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:admin:tokens",
        "ZSET",
        "the ids of the admin side's tokens by their last use (epoch s, a minute coarse; 0: never)",
        "for ever",
        "command line, admin API; the admin port notes uses",
    ),
    KeySpec(
        "t:admin:token:<token>",
        "HASH",
        "name, scope (read, full), hash (SHA-256 of the token, in hex), created (epoch s)",
        "until revoked",
        "command line, admin API",
    ),
    KeySpec(
        "t:admin:sessions",
        "ZSET",
        "`<digest>` of the sessions by their end (epoch s)",
        "for ever; those that ended go at the next sign-in",
        "sign_in.lua, sign-out",
    ),
    KeySpec(
        "t:admin:session:<digest>",
        "HASH",
        "name, scope, csrf (what its forms must send), token (the id it began with; empty: a link), ends "
        "(epoch s); `<digest>` is "
        "the SHA-256 of the cookie, in hex",
        "until signed out, at most `session_seconds`",
        "sign_in.lua, sign-out",
    ),
    KeySpec(
        "t:admin:link:<digest>",
        "STRING",
        "when the one-time sign-in link ends (epoch s); `<digest>` is the SHA-256 of its secret, in hex",
        "until its first use, at most 15 minutes",
        "tracker, command line",
    ),
)
