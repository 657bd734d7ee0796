"""Access to the admin API and dashboard: tokens, browser sessions, and sign-in links for one use.

Every secret has 256 random bits. The store holds only its SHA-256, so a copy of the store or of a backup gives no
access. Nothing is cached: a revoked token or session is invalid for the next request.

Several shards have copies of tokens and sessions (copies.py). While the main prefix is unavailable, one holds that more
than half of all shards have, those counted that do not answer. So copies that shards kept because they did not answer
at the revocation give no access, unless half of the shards missed it, and the main prefix was not there to make up for
it since.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Annotated, Any, Literal, TypeVar, get_args

from redis.exceptions import RedisError

from tracker.bittorrent import Address
from tracker.errors import ClientError, Conflict, NotFound, StoreUnavailable
from tracker.store.client.pipe import Argument, flattened
from tracker.store.client.scripts import Script
from tracker.store.schema.record import Field
from tracker.store.sharding.shards import Shard, StorePart, noting_unavailable_shards

Role = Literal["read", "operate", "admin"]
"""Each role may do what the roles before it may."""
ROLES: tuple[Role, ...] = get_args(Role)

LINK_SECONDS = 900
"""How long a sign-in link is valid, if unused."""
MAX_TOKENS = 1000
MAX_SESSIONS = 1000
UNKNOWN = Address(b"")
"""An address that is not known, such as that of a connection to a unix socket."""
MAX_NETWORKS = 32
"""How many networks a token can be limited to."""
NAME_LENGTH = 64
LINK_NAME = "sign-in link"
"""The name of sessions that began with a link."""

_Item = TypeVar("_Item")
_USE_RECORDED_SECONDS = 60
_LAST_MOMENT = 253_402_300_799
"""The end of the year 9999 (epoch s). Later ones are mistakes, such as milliseconds."""
_FIELDS = ("name", "role", "hash", "created", "expires", "addresses")
"""What is stored of a token."""
_TOKEN = re.compile(r"swk_([0-9a-f]{12})_[A-Za-z0-9_-]{43}", re.ASCII)
_TOKEN_ID = re.compile(r"[0-9a-f]{12}", re.ASCII)
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the admin port. Its secret is not stored."""

    token_id: Annotated[str, Field()]
    name: Annotated[str, Field()]
    role: Annotated[Role, Field()]
    created: Annotated[int, Field(unit="epoch s")]
    last_used: Annotated[int | None, Field("Precise to a minute; null if never used.", unit="epoch s")] = None
    expires: Annotated[int | None, Field("When the token becomes invalid; null: never.", unit="epoch s")] = None
    addresses: Annotated[tuple[str, ...], Field("The networks it may be used from; empty: any address.")] = ()

    def admits(self, address: Address, now: float) -> bool:
        """Whether the token is valid now and from this address."""
        if self.expires is not None and self.expires <= now:
            return False
        return not self.addresses or any(_contains(network, address) for network in self.addresses)


@dataclass(frozen=True, slots=True)
class Session:
    """A browser session. ``token_id`` is empty if it began with a link; ``ends`` is epoch seconds."""

    name: str
    role: Role
    csrf: str
    token_id: str
    ends: int


class Tokens(StorePart):
    """The tokens, sessions and links of a store. ``clock`` returns epoch seconds."""

    async def create(
        self, name: str, role: Role, *, expires: int | None = None, addresses: Sequence[str] = ()
    ) -> tuple[Token, str]:
        """Creates a token and returns it with its text, which is not stored. ``expires`` is epoch seconds,
        ``addresses`` are addresses or networks. Raises ClientError if a value is invalid, Conflict if the name is taken
        or if there are too many tokens."""
        name, now = name.strip(), self._now()
        if not (0 < len(name) <= NAME_LENGTH and name.isprintable()) or _TOKEN_ID.fullmatch(name):
            raise ClientError(f"a token name is 1 to {NAME_LENGTH} printable characters, and not a token id")
        if expires is not None and not now < expires <= _LAST_MOMENT:
            raise ClientError("a token must expire in the future")
        token = Token(secrets.token_hex(6), name, role, now, None, expires, _networks(addresses))
        text = f"swk_{token.token_id}_{_new_secret()}"
        fields: dict[str, str | int] = {"name": name, "role": role, "hash": _digest(text), "created": now}
        fields |= {} if expires is None else {"expires": expires}
        fields |= {"addresses": " ".join(token.addresses)} if token.addresses else {}
        argv: list[Argument] = [token.token_id, name, MAX_TOKENS, *flattened(fields)]
        done = await self._scripts.add_token(argv)
        if done == 0:
            raise Conflict("a token with this name exists")
        if done < 0:
            raise Conflict("too many tokens: revoke some")
        await self._run_in_others(lambda shard: shard.scripts.add_token, argv)
        return token, text

    async def list(self) -> list[Token]:
        """Returns all tokens, oldest first."""
        rows = await self._connection.command("ZRANGE", self._keys.admin_tokens(), 0, -1, "WITHSCORES")
        used = {rows[i].decode(): int(float(rows[i + 1])) for i in range(0, len(rows), 2)}
        found = await self._connection.pipeline(
            *(("HMGET", self._keys.admin_token(token_id), *_FIELDS) for token_id in used)
        )
        tokens = [
            _token(token_id, _named(values), last_used)
            for (token_id, last_used), values in zip(used.items(), found, strict=True)
            if values[0] is not None
        ]
        return sorted(tokens, key=lambda token: (token.created, token.name))

    async def any(self) -> bool:
        return bool(await self._connection.command("ZCARD", self._keys.admin_tokens()))

    async def revoke(self, who: str) -> Token:
        """Revokes a token, by id or name, and ends its sessions. Raises ClientError if there is no such token."""
        known = await self.list()
        token = next((each for each in known if who in (each.token_id, each.name)), None)
        if token is None:
            raise NotFound("there is no such token")
        token_id = token.token_id
        # Deletes the token first: if the next command fails, the token is invalid all the same.
        await self._everywhere(lambda shard: ("UNLINK", shard.keys.admin_token(token_id)))
        await self._everywhere(lambda shard: ("ZREM", shard.keys.admin_tokens(), token_id))
        return token

    async def verify(self, text: str, address: Address = UNKNOWN) -> Token | None:
        """Returns the token with this text. None if it is unknown, revoked or expired, or not for this address."""
        match = _TOKEN.fullmatch(text)
        if match is None:
            return None
        token_id = match[1]

        def commands(shard: Shard) -> tuple[tuple[Argument, ...], ...]:
            row = ("HMGET", shard.keys.admin_token(token_id), *_FIELDS)
            return row, ("ZSCORE", shard.keys.admin_tokens(), token_id)

        try:
            found, last_used = await self._connection.pipeline(*commands(self._shards.main))
        except StoreUnavailable as error:
            copies = await self._copies(error, self._shards.several(commands))
            found = _held_by_most([row for row, _ in copies], len(self._shards)) or [None] * len(_FIELDS)
            last_used = 0
        values, used = _named(found), int(float(last_used or 0))
        digest = values["hash"]
        if digest is None or not hmac.compare_digest(digest, _digest(text).encode()):
            return None
        token = _token(match[1], values, used)
        if not token.admits(address, self._now()):
            return None
        await self._record_use(token.token_id, used)
        return token

    async def _record_use(self, token_id: str, last_used: int) -> None:
        if self._now() - last_used < _USE_RECORDED_SECONDS:
            return
        # A store that is full or read-only must not make a valid token invalid.
        with suppress(RedisError, StoreUnavailable):
            # XX: does not list a token again that is being revoked at the same time.
            await self._connection.command("ZADD", self._keys.admin_tokens(), "XX", "GT", self._now(), token_id)

    async def new_link(self) -> str:
        """Creates a sign-in link and returns its secret. It gives role ``admin`` once, within LINK_SECONDS."""
        secret = _new_secret()
        ends = self._now() + LINK_SECONDS
        await self._connection.command("SET", self._keys.admin_link(_digest(secret)), ends, "EX", LINK_SECONDS)
        return secret

    async def sign_in_by_link(self, secret: str, seconds: int) -> tuple[Session, str] | None:
        """Starts a session of ``seconds`` and returns it with its secret. None if the link is unknown, used or
        expired."""
        if not _SECRET.fullmatch(secret):
            return None
        ends = await self._connection.command("GETDEL", self._keys.admin_link(_digest(secret)))
        if ends is None or int(ends) <= self._now():
            return None
        return await self._sign_in(LINK_NAME, "admin", "", self._now() + seconds)

    async def sign_in_by_token(self, text: str, seconds: int, address: Address = UNKNOWN) -> tuple[Session, str] | None:
        """Starts a session with the role of a token, and returns it with its secret. None if the token is invalid. The
        session ends with the token, and is valid only for its addresses."""
        token = await self.verify(text, address)
        if token is None:
            return None
        ends = self._now() + seconds
        ends = ends if token.expires is None else min(ends, token.expires)
        return await self._sign_in(token.name, token.role, token.token_id, ends)

    async def _sign_in(self, name: str, role: Role, token_id: str, ends: int) -> tuple[Session, str]:
        secret = _new_secret()
        session = Session(name, role, _new_secret(), token_id, ends)
        fields = ("name", name, "role", role, "csrf", session.csrf, "ends", ends)
        argv: list[Argument] = [_digest(secret), self._now(), ends, MAX_SESSIONS, token_id, *fields]
        await self._scripts.sign_in(argv)
        await self._run_in_others(lambda shard: shard.scripts.sign_in, argv)
        return session, secret

    async def session(self, secret: str, address: Address = UNKNOWN) -> Session | None:
        """Returns the session with this secret. None if it is unknown or expired, or if its token was revoked or does
        not admit ``address``."""
        if not _SECRET.fullmatch(secret):
            return None
        names = ("name", "csrf", "token", "ends", "role")
        argv = [_digest(secret), " ".join(_FIELDS), *names]
        try:
            row, *of_token = await self._scripts.session(argv)
        except StoreUnavailable as error:
            others = dict.fromkeys(self._shards.others, argv)
            copies = await self._copies(error, self._shards.run(lambda shard: shard.scripts.session, others))
            replies = [reply[:2] for reply in copies]  # without the last use
            held: Sequence[Any] | None = _held_by_most(replies, len(self._shards))
            if held is None:
                return None
            row, *of_token = *held, 0
        if None in row[:4]:
            return None
        name, csrf, token_id, ends = (value.decode() for value in row[:4])
        if int(ends) <= self._now():
            return None
        role = _role(row[4])
        if token_id:
            values, used = _named(of_token[0]), int(float(of_token[1] or 0))
            token = _token(token_id, values, used)
            if values["hash"] is None or not token.admits(address, self._now()):
                return None
            await self._record_use(token_id, used)
            role = token.role
        return Session(name, role, csrf, token_id, int(ends))

    async def sign_out(self, secret: str) -> None:
        """Ends a session. Ignores an unknown secret."""
        if not _SECRET.fullmatch(secret):
            return
        digest = _digest(secret)
        await self._everywhere(lambda shard: ("UNLINK", shard.keys.admin_session(digest)))
        await self._everywhere(lambda shard: ("ZREM", shard.keys.admin_sessions(), digest))

    async def end_all_sessions(self) -> int:
        """Ends all sessions. Returns how many had not expired."""
        digests = await self._connection.command("ZRANGE", self._keys.admin_sessions(), 0, -1)
        if not digests:
            return 0
        ended = await self._everywhere(
            lambda shard: ("UNLINK", *(shard.keys.admin_session(digest.decode()) for digest in digests))
        )
        await self._everywhere(lambda shard: ("ZREM", shard.keys.admin_sessions(), *digests))
        return int(ended)

    async def _everywhere(self, command: Callable[[Shard], tuple[Argument, ...]]) -> Any:
        """Its reply under the main prefix. A shard that does not answer gets it when it is back."""
        reply = await self._connection.command(*command(self._shards.main))
        with suppress(StoreUnavailable), noting_unavailable_shards():
            await self._shards.each(command, self._shards.others)
        return reply

    async def _run_in_others(self, script_of: Callable[[Shard], Script], argv: Sequence[Argument]) -> None:
        with suppress(StoreUnavailable), noting_unavailable_shards():
            await self._shards.run(script_of, dict.fromkeys(self._shards.others, argv))

    async def _copies(self, error: StoreUnavailable, read: Coroutine[Any, Any, dict[Shard, Any]]) -> tuple[Any, ...]:
        """What the available shards have instead of the main prefix, whose ``error`` is raised if it is available."""
        if not self._shards.main_is_unavailable:
            read.close()
            raise error
        with noting_unavailable_shards():
            return tuple((await read).values())

    def _now(self) -> int:
        return int(self._clock())


def _held_by_most(copies: Sequence[_Item], shards: int) -> _Item | None:
    """The copy that more than half of all shards have."""
    return next((each for each in copies if 2 * copies.count(each) > shards), None)


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def may(role: Role, needed: Role) -> bool:
    return ROLES.index(role) >= ROLES.index(needed)


def _named(values: Sequence[bytes | None]) -> dict[str, bytes | None]:
    return dict(zip(_FIELDS, values, strict=True))


def _token(token_id: str, values: Mapping[str, bytes | None], used: int) -> Token:
    """Reads a stored token. An invalid expiry has passed, and an invalid network contains no address."""
    expires, addresses = values["expires"], values["addresses"] or b""
    return Token(
        token_id,
        (values["name"] or b"").decode(),
        _role(values["role"]),
        int(values["created"] or 0),
        used or None,
        None if expires is None else int(expires) if expires.isdigit() else 0,
        tuple(addresses.decode("utf-8", "replace").split()),
    )


def _role(role: bytes | None) -> Role:
    """Reads a stored role. Anything invalid is the lowest role."""
    text = (role or b"").decode("utf-8", "replace")
    return text if text in ROLES else "read"


def _networks(addresses: Sequence[str]) -> tuple[str, ...]:
    """Addresses and networks in canonical form. Raises ClientError."""
    if len(addresses) > MAX_NETWORKS:
        raise ClientError(f"a token has at most {MAX_NETWORKS} addresses")
    try:
        return tuple(dict.fromkeys(str(ip_network(text.strip(), strict=False)) for text in addresses))
    except ValueError:
        raise ClientError("not an IP address or network, such as 192.0.2.0/24") from None


def _contains(network: str, address: Address) -> bool:
    try:
        return ip_address(address) in ip_network(network)
    except ValueError:
        return False
