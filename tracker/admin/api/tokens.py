"""/tokens: who may use the admin port. Only scope full sees them."""

from typing import Annotated, Literal

from pydantic import Field

from tracker.admin.api.contract import Answer, Body, Call, Endpoints
from tracker.admin.api.models import Moment
from tracker.admin.api.routing import conflict, not_found
from tracker.errors import ClientError
from tracker.store.tokens import Token

endpoints = Endpoints("tokens", "Who may use the admin port.")

TokenIdText = Annotated[
    str,
    Field(pattern="^[0-9a-f]{12}$", description="The id of a token, no secret.", examples=["0123456789ab"]),
]


class TokenRow(Answer):
    """A token, without its secret, which is stored nowhere."""

    token_id: str
    name: str
    scope: Literal["read", "full"]
    created: Moment
    last_used: Moment | None = Field(description="A minute coarse; null when it never was.")


class TokenList(Answer):
    """Every token, the oldest first."""

    items: list[TokenRow]


class TokenNew(Body):
    """A new token."""

    name: str = Field(
        min_length=1,
        max_length=64,
        pattern="^[^\\u0000-\\u001f\\u007f]*$",
        description="Who or what uses it. No two tokens have the same.",
        examples=["site"],
    )
    scope: Literal["read", "full"] = Field("read", description="`read` may look, and sees no passkeys.")


class TokenCreated(TokenRow):
    """A new token and its secret, told once."""

    token: str = Field(description="To be sent as `Authorization: Bearer …`.")


@endpoints.get("/tokens", "List tokens", full_only=True)
async def list_all(call: Call) -> TokenList:
    return TokenList(items=[TokenRow(**_fields(token)) for token in await call.stores.tokens.list()])


@endpoints.post(
    "/tokens",
    "Make a token",
    status=201,
    errors={409: "A token with this name exists, or there are too many."},
)
async def create(call: Call, body: TokenNew) -> TokenCreated:
    try:
        token, text = await call.stores.tokens.create(body.name, body.scope)
    except ClientError as error:
        if error.text.startswith("a token's name"):
            raise
        raise conflict(error) from error
    return TokenCreated(**_fields(token), token=text)


@endpoints.delete("/tokens/{token_id}", "Revoke a token", errors={404: "There is no such token."})
async def revoke(call: Call, token_id: TokenIdText) -> None:
    """The very next request with it is refused, and whoever signed in with it is signed out."""
    try:
        await call.stores.tokens.revoke(token_id)
    except ClientError as error:
        raise not_found("token") from error


def _fields(token: Token) -> dict[str, object]:
    return {name: getattr(token, name) for name in TokenRow.model_fields}
