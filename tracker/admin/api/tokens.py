"""/tokens: tokens for the admin port. Only scope full sees them."""

from typing import Annotated, Literal

from pydantic import Field

from tracker.admin.api.contract import Body, Call, Endpoints, Reply
from tracker.admin.api.models import Moment
from tracker.admin.api.routing import not_found
from tracker.errors import ClientError
from tracker.store.access.tokens import Token

endpoints = Endpoints("tokens", "Tokens for the dashboard, the API and the metrics.")

TokenIdText = Annotated[
    str,
    Field(pattern="^[0-9a-f]{12}$", description="Token ID; not secret.", examples=["0123456789ab"]),
]


class TokenRow(Reply):
    """A token without its secret, which is not stored."""

    token_id: str
    name: str
    scope: Literal["read", "full"]
    created: Moment
    last_used: Moment | None = Field(description="Precise to a minute; null if never used.")


class TokenList(Reply):
    """All tokens, oldest first."""

    items: list[TokenRow]


class TokenNew(Body):
    """A new token."""

    name: str = Field(
        min_length=1,
        max_length=64,
        pattern="^[^\\u0000-\\u001f\\u007f]*$",
        description="Unique name of its user.",
        examples=["site"],
    )
    scope: Literal["read", "full"] = Field(
        "read", description="`read`: GET only, without passkeys. `full`: everything."
    )


class TokenCreated(TokenRow):
    """A new token with its secret, shown once."""

    token: str = Field(description="Send it as `Authorization: Bearer …`.")


@endpoints.get("/tokens", "List tokens", full_only=True)
async def list_all(call: Call) -> TokenList:
    return TokenList(items=[TokenRow(**_fields(token)) for token in await call.store.tokens.list()])


@endpoints.post(
    "/tokens",
    "Create a token",
    status=201,
    errors={409: "The name is taken, or there are too many tokens."},
)
async def create(call: Call, body: TokenNew) -> TokenCreated:
    token, text = await call.store.tokens.create(body.name, body.scope)
    return TokenCreated(**_fields(token), token=text)


@endpoints.delete("/tokens/{token_id}", "Revoke a token", errors={404: "Unknown token."})
async def revoke(call: Call, token_id: TokenIdText) -> None:
    """Requests with it are refused immediately, and its sessions end."""
    try:
        await call.store.tokens.revoke(token_id)
    except ClientError as error:
        raise not_found("token") from error


def _fields(token: Token) -> dict[str, object]:
    return {name: getattr(token, name) for name in TokenRow.model_fields}
