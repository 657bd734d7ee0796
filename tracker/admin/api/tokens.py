"""/tokens: tokens for the admin port. Only role admin sees them."""

from typing import Annotated

from pydantic import Field

from tracker.admin.api.contract import Body, Call, Endpoints, Reply
from tracker.admin.api.models import Items, reply_of
from tracker.store.access.tokens import MAX_NETWORKS, Role, Token
from tracker.store.schema.record import shown

endpoints = Endpoints("tokens", "Tokens for the dashboard, the API and the metrics.")

TokenIdText = Annotated[
    str, Field(pattern="^[0-9a-f]{12}$", description="Token ID; not secret.", examples=["0123456789ab"])
]


@reply_of(Token)
class TokenRow(Reply):
    """A token without its secret, which is not stored."""


class TokenList(Items[TokenRow]):
    """All tokens, oldest first."""


class TokenNew(Body):
    """A new token."""

    name: Annotated[str, Field(min_length=1, max_length=64, pattern="^[^\\u0000-\\u001f\\u007f]*$")] = Field(
        description="Unique name of its user.", examples=["site"]
    )
    role: Role = Field(
        "read",
        description="`read`: GET only, without passkeys and addresses of users. `operate`: daily changes too. `admin`: "
        "everything.",
    )
    expires: int | None = Field(
        None, ge=1, le=253_402_300_799, description="When it becomes invalid (epoch s); null: never."
    )
    addresses: list[Annotated[str, Field(min_length=1, max_length=50)]] = Field(
        [],
        max_length=MAX_NETWORKS,
        description="IP addresses and networks that it may be used from; empty: any.",
        examples=[["192.0.2.0/24"]],
    )


class TokenCreated(TokenRow):
    """A new token with its secret, shown once."""

    status_code = 201

    token: str = Field(description="Send it as `Authorization: Bearer …`.")


@endpoints.get("/tokens", "List tokens", role="admin")
async def list_all(call: Call) -> TokenList:
    return TokenList(items=[TokenRow(**shown(token)) for token in await call.store.tokens.list()])


@endpoints.post(
    "/tokens",
    "Create a token",
    "token.create",
    role="admin",
    conflict="The name is taken, or there are too many tokens.",
)
async def create(call: Call, body: TokenNew) -> TokenCreated:
    token, text = await call.store.tokens.create(body.name, body.role, expires=body.expires, addresses=body.addresses)
    return TokenCreated(**shown(token), token=text)


@endpoints.delete("/tokens/{token_id}", "Revoke a token", "token.revoke", role="admin")
async def revoke(call: Call, token_id: TokenIdText) -> None:
    """Requests with it are refused immediately, and its sessions end."""
    await call.store.tokens.revoke(token_id)
