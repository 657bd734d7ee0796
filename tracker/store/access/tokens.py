"""Who may use the admin side: tokens, sessions of browsers, and links that sign in once.

Whatever lets somebody in has 256 random bits and is kept as its SHA-256 only, so that reading the store, or a backup
of it, opens nothing. Nothing is cached: what is revoked is refused by the very next request.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, cast

from redis.exceptions import RedisError

from tracker.errors import ClientError, StoreAway
from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts

Scope = Literal["read", "full"]

LINK_SECONDS = 900
"""How long a sign-in link may wait for its one use."""
MOST_TOKENS = 1000
MOST_SESSIONS = 1000
NAME_LENGTH = 64
LINK_NAME = "sign-in link"
"""The name in sessions that began with a link."""

_USE_NOTED_SECONDS = 60
_TOKEN = re.compile(r"swk_([0-9a-f]{12})_[A-Za-z0-9_-]{43}", re.ASCII)
_TOKEN_ID = re.compile(r"[0-9a-f]{12}", re.ASCII)
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Token:
    """``created`` and ``last_used`` are epoch seconds, the latter a minute coarse; None when it was never used."""

    token_id: str
    name: str
    scope: Scope
    created: int
    last_used: int | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A signed-in browser. ``token_id`` is empty when it began with a link; ``ends`` is epoch seconds."""

    name: str
    scope: Scope
    csrf: str
    token_id: str
    ends: int


class Tokens:
    """The tokens, sessions and links of one prefix. ``clock`` gives epoch seconds."""

    def __init__(
        self, connection: Connection, scripts: Scripts, keys: Keys, clock: Callable[[], float]
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._clock = clock

    async def create(self, name: str, scope: Scope) -> tuple[Token, str]:
        """A new token and its text, which is nowhere else; raises ClientError for a name that is taken or none."""
        name = name.strip()
        if not (0 < len(name) <= NAME_LENGTH and name.isprintable()) or _TOKEN_ID.fullmatch(name):
            raise ClientError(f"a token's name is 1 to {NAME_LENGTH} printable characters, and no token's id")
        token = Token(secrets.token_hex(6), name, scope, self._now())
        text = f"swk_{token.token_id}_{_new_secret()}"
        done = await self._scripts.add_token(
            [token.token_id, name, scope, _digest(text), token.created, MOST_TOKENS]
        )
        if done == 0:
            raise ClientError("a token with this name exists")
        if done < 0:
            raise ClientError("there are too many tokens: revoke some")
        return token, text

    async def list(self) -> list[Token]:
        """All tokens, the oldest first."""
        rows = await self._connection.command("ZRANGE", self._keys.admin_tokens(), 0, -1, "WITHSCORES")
        used = {rows[i].decode(): int(float(rows[i + 1])) for i in range(0, len(rows), 2)}
        found = await self._connection.pipeline(
            *(("HMGET", self._keys.admin_token(token_id), "name", "scope", "created") for token_id in used)
        )
        tokens = [
            Token(token_id, name.decode(), _scope(scope), int(created or 0), last_used or None)
            for (token_id, last_used), (name, scope, created) in zip(used.items(), found, strict=True)
            if name is not None
        ]
        return sorted(tokens, key=lambda token: (token.created, token.name))

    async def any(self) -> bool:
        """Whether there is a token at all."""
        return bool(await self._connection.command("ZCARD", self._keys.admin_tokens()))

    async def revoke(self, who: str) -> Token:
        """Ends a token, by id or name, and every session that began with it; raises ClientError when there is none."""
        for token in await self.list():
            if who in (token.token_id, token.name):
                # The token itself first: should the rest fail, it opens nothing any more.
                await self._connection.command("UNLINK", self._keys.admin_token(token.token_id))
                await self._connection.command("ZREM", self._keys.admin_tokens(), token.token_id)
                return token
        raise ClientError("there is no such token")

    async def verify(self, text: str) -> Token | None:
        """The token of this text; None when there is no such token, or no more."""
        named = _TOKEN.fullmatch(text)
        if named is None:
            return None
        token_id = named[1]
        (digest, name, scope, created), used = await self._connection.pipeline(
            ("HMGET", self._keys.admin_token(token_id), "hash", "name", "scope", "created"),
            ("ZSCORE", self._keys.admin_tokens(), token_id),
        )
        if digest is None or not hmac.compare_digest(digest, _digest(text).encode()):
            return None
        last_used = int(float(used or 0))
        await self._note_use(token_id, last_used)
        return Token(token_id, name.decode(), _scope(scope), int(created or 0), last_used or None)

    async def _note_use(self, token_id: str, last_used: int) -> None:
        if self._now() - last_used < _USE_NOTED_SECONDS:
            return
        # Who may come in is not kept out by a note that a full store, or one that takes no writes, does not take.
        with suppress(RedisError, StoreAway):
            # XX: a token that was revoked in this moment does not come back into the list.
            await self._connection.command(
                "ZADD", self._keys.admin_tokens(), "XX", "GT", self._now(), token_id
            )

    async def new_link(self) -> str:
        """The secret of a link that signs in once, within LINK_SECONDS, with every right."""
        secret = _new_secret()
        ends = self._now() + LINK_SECONDS
        await self._connection.command(
            "SET", self._keys.admin_link(_digest(secret)), ends, "EX", LINK_SECONDS
        )
        return secret

    async def sign_in_by_link(self, secret: str, seconds: int) -> tuple[Session, str] | None:
        """A session of so many seconds and its secret, for a link's first use; None for any other."""
        if not _SECRET.fullmatch(secret):
            return None
        ends = await self._connection.command("GETDEL", self._keys.admin_link(_digest(secret)))
        if ends is None or int(ends) <= self._now():
            return None
        return await self._sign_in(LINK_NAME, "full", "", seconds)

    async def sign_in_by_token(self, text: str, seconds: int) -> tuple[Session, str] | None:
        """A session with a token's rights, which ends with the token; None when the token is none."""
        token = await self.verify(text)
        return await self._sign_in(token.name, token.scope, token.token_id, seconds) if token else None

    async def _sign_in(self, name: str, scope: Scope, token_id: str, seconds: int) -> tuple[Session, str]:
        secret, now = _new_secret(), self._now()
        session = Session(name, scope, _new_secret(), token_id, now + seconds)
        fields = ("name", name, "scope", scope, "csrf", session.csrf, "ends", session.ends)
        await self._scripts.sign_in([_digest(secret), now, session.ends, MOST_SESSIONS, token_id, *fields])
        return session, secret

    async def session(self, secret: str) -> Session | None:
        """The session of this secret; None when it has ended, by itself or with its token."""
        if not _SECRET.fullmatch(secret):
            return None
        row = await self._connection.command(
            "HMGET",
            self._keys.admin_session(_digest(secret)),
            *("name", "scope", "csrf", "token", "ends"),
        )
        if None in row:
            return None
        name, scope, csrf, token_id, ends = (value.decode() for value in row)
        if int(ends) <= self._now() or (token_id and not await self._lives(token_id)):
            return None
        return Session(name, _scope(scope), csrf, token_id, int(ends))

    async def _lives(self, token_id: str) -> bool:
        exists, used = await self._connection.pipeline(
            ("EXISTS", self._keys.admin_token(token_id)), ("ZSCORE", self._keys.admin_tokens(), token_id)
        )
        if exists:
            await self._note_use(token_id, int(float(used or 0)))
        return bool(exists)

    async def sign_out(self, secret: str) -> None:
        """Ends a session, if it is one."""
        if not _SECRET.fullmatch(secret):
            return
        digest = _digest(secret)
        await self._connection.command("UNLINK", self._keys.admin_session(digest))
        await self._connection.command("ZREM", self._keys.admin_sessions(), digest)

    async def sign_everybody_out(self) -> int:
        """Ends every session; the number of those that had not ended by themselves."""
        digests = await self._connection.command("ZRANGE", self._keys.admin_sessions(), 0, -1)
        if not digests:
            return 0
        keys = [self._keys.admin_session(digest.decode()) for digest in digests]
        ended = await self._connection.command("UNLINK", *keys)
        await self._connection.command("ZREM", self._keys.admin_sessions(), *digests)
        return int(ended)

    def _now(self) -> int:
        return int(self._clock())


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _scope(stored: bytes | str | None) -> Scope:
    """What is stored; anything that is no scope allows least."""
    text = stored.decode() if isinstance(stored, bytes) else stored
    return cast(Scope, text) if text in ("read", "full") else "read"
