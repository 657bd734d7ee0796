"""Access to the admin API and dashboard: tokens, browser sessions, and sign-in links for one use.

Every secret has 256 random bits. The store holds only its SHA-256, so a copy of the store or of a backup gives no
access. Nothing is cached: a revoked token or session is invalid for the next request.
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

from tracker.errors import ClientError, Conflict, StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys

Scope = Literal["read", "full"]

LINK_SECONDS = 900
"""How long a sign-in link is valid, if unused."""
MAX_TOKENS = 1000
MAX_SESSIONS = 1000
NAME_LENGTH = 64
LINK_NAME = "sign-in link"
"""The name of sessions that began with a link."""

_USE_RECORDED_SECONDS = 60
_TOKEN = re.compile(r"swk_([0-9a-f]{12})_[A-Za-z0-9_-]{43}", re.ASCII)
_TOKEN_ID = re.compile(r"[0-9a-f]{12}", re.ASCII)
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Token:
    """``created`` and ``last_used`` are epoch seconds. ``last_used`` is accurate to a minute; None if unused."""

    token_id: str
    name: str
    scope: Scope
    created: int
    last_used: int | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A browser session. ``token_id`` is empty if it began with a link; ``ends`` is epoch seconds."""

    name: str
    scope: Scope
    csrf: str
    token_id: str
    ends: int


class Tokens:
    """The tokens, sessions and links under one key prefix. ``clock`` returns epoch seconds."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        clock: Callable[[], float],
        *,
        max_tokens: int = MAX_TOKENS,
        max_sessions: int = MAX_SESSIONS,
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._clock = clock
        self._max_tokens = max_tokens
        self._max_sessions = max_sessions

    async def create(self, name: str, scope: Scope) -> tuple[Token, str]:
        """Creates a token and returns it with its text, which is not stored.

        Raises ClientError if the name is invalid, Conflict if it is taken or if there are too many tokens.
        """
        name = name.strip()
        if not (0 < len(name) <= NAME_LENGTH and name.isprintable()) or _TOKEN_ID.fullmatch(name):
            raise ClientError(f"a token name is 1 to {NAME_LENGTH} printable characters, and not a token id")
        token = Token(secrets.token_hex(6), name, scope, self._now())
        text = f"swk_{token.token_id}_{_new_secret()}"
        done = await self._scripts.add_token(
            [token.token_id, name, scope, _digest(text), token.created, self._max_tokens]
        )
        if done == 0:
            raise Conflict("a token with this name exists")
        if done < 0:
            raise Conflict("too many tokens: revoke some")
        return token, text

    async def list(self) -> list[Token]:
        """Returns all tokens, oldest first."""
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
        """Returns whether there is any token."""
        return bool(await self._connection.command("ZCARD", self._keys.admin_tokens()))

    async def revoke(self, who: str) -> Token:
        """Revokes a token, by id or name, and ends its sessions. Raises ClientError if there is no such token."""
        for token in await self.list():
            if who in (token.token_id, token.name):
                # Deletes the token first: if the next command fails, the token is invalid all the same.
                await self._connection.command("UNLINK", self._keys.admin_token(token.token_id))
                await self._connection.command("ZREM", self._keys.admin_tokens(), token.token_id)
                return token
        raise ClientError("there is no such token")

    async def verify(self, text: str) -> Token | None:
        """Returns the token with this text. None if it is unknown or revoked."""
        match = _TOKEN.fullmatch(text)
        if match is None:
            return None
        token_id = match[1]
        (digest, name, scope, created), used = await self._connection.pipeline(
            ("HMGET", self._keys.admin_token(token_id), "hash", "name", "scope", "created"),
            ("ZSCORE", self._keys.admin_tokens(), token_id),
        )
        if digest is None or not hmac.compare_digest(digest, _digest(text).encode()):
            return None
        last_used = int(float(used or 0))
        await self._record_use(token_id, last_used)
        return Token(token_id, name.decode(), _scope(scope), int(created or 0), last_used or None)

    async def _record_use(self, token_id: str, last_used: int) -> None:
        if self._now() - last_used < _USE_RECORDED_SECONDS:
            return
        # A store that is full or read-only must not make a valid token invalid.
        with suppress(RedisError, StoreUnavailable):
            # XX: does not list a token again that is being revoked at the same time.
            await self._connection.command(
                "ZADD", self._keys.admin_tokens(), "XX", "GT", self._now(), token_id
            )

    async def new_link(self) -> str:
        """Creates a sign-in link and returns its secret. It gives full access once, within LINK_SECONDS."""
        secret = _new_secret()
        ends = self._now() + LINK_SECONDS
        await self._connection.command(
            "SET", self._keys.admin_link(_digest(secret)), ends, "EX", LINK_SECONDS
        )
        return secret

    async def sign_in_by_link(self, secret: str, seconds: int) -> tuple[Session, str] | None:
        """Starts a session of ``seconds`` and returns it with its secret.

        None if the link is unknown, used or expired.
        """
        if not _SECRET.fullmatch(secret):
            return None
        ends = await self._connection.command("GETDEL", self._keys.admin_link(_digest(secret)))
        if ends is None or int(ends) <= self._now():
            return None
        return await self._sign_in(LINK_NAME, "full", "", seconds)

    async def sign_in_by_token(self, text: str, seconds: int) -> tuple[Session, str] | None:
        """Starts a session with the access of a token, and returns it with its secret. None if the token is invalid.

        Revoking the token ends the session.
        """
        token = await self.verify(text)
        return await self._sign_in(token.name, token.scope, token.token_id, seconds) if token else None

    async def _sign_in(self, name: str, scope: Scope, token_id: str, seconds: int) -> tuple[Session, str]:
        secret, now = _new_secret(), self._now()
        session = Session(name, scope, _new_secret(), token_id, now + seconds)
        fields = ("name", name, "scope", scope, "csrf", session.csrf, "ends", session.ends)
        await self._scripts.sign_in(
            [_digest(secret), now, session.ends, self._max_sessions, token_id, *fields]
        )
        return session, secret

    async def session(self, secret: str) -> Session | None:
        """Returns the session with this secret. None if it is unknown or expired, or if its token was revoked."""
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
        if int(ends) <= self._now() or (token_id and not await self._exists(token_id)):
            return None
        return Session(name, _scope(scope), csrf, token_id, int(ends))

    async def _exists(self, token_id: str) -> bool:
        exists, used = await self._connection.pipeline(
            ("EXISTS", self._keys.admin_token(token_id)), ("ZSCORE", self._keys.admin_tokens(), token_id)
        )
        if exists:
            await self._record_use(token_id, int(float(used or 0)))
        return bool(exists)

    async def sign_out(self, secret: str) -> None:
        """Ends a session. Ignores an unknown secret."""
        if not _SECRET.fullmatch(secret):
            return
        digest = _digest(secret)
        await self._connection.command("UNLINK", self._keys.admin_session(digest))
        await self._connection.command("ZREM", self._keys.admin_sessions(), digest)

    async def end_all_sessions(self) -> int:
        """Ends all sessions. Returns how many had not expired."""
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
    """Reads a stored scope. Anything invalid is 'read', the lowest access."""
    text = stored.decode() if isinstance(stored, bytes) else stored
    return cast(Scope, text) if text in ("read", "full") else "read"
