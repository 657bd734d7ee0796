"""Access to /metrics while tokens cannot be looked up."""

from typing import cast

import pytest
from aiohttp.test_utils import make_mocked_request

from tests.store.harness import Clock
from tracker.admin.auth.auth import MAX_REMEMBERED, METRICS, REMEMBERED_SECONDS, Access
from tracker.bittorrent import Address
from tracker.errors import StoreUnavailable
from tracker.store.access.tokens import Token, Tokens


class Lookup:
    """The tokens of a store that may be unavailable."""

    def __init__(self) -> None:
        self.is_available = True
        self.revoked: set[str] = set()

    async def verify(self, text: str, _address: Address) -> Token | None:
        if not self.is_available:
            raise StoreUnavailable
        return None if text in self.revoked else Token("0123456789ab", text, "read", 0)


class Readers:
    def __init__(self) -> None:
        self.clock = Clock()
        self.tokens = Lookup()
        self.access = Access(cast(Tokens, self.tokens), self.clock)

    async def name_of(self, secret: str) -> str | None:
        request = make_mocked_request("GET", METRICS, headers={"Authorization": f"Bearer {secret}"})
        identity = await self.access._known(request, METRICS)
        return identity.name if identity else None

    async def is_recalled(self, secret: str) -> bool:
        """Whether the store is not needed."""
        self.tokens.is_available = False
        try:
            return await self.name_of(secret) == secret
        except StoreUnavailable:
            return False
        finally:
            self.tokens.is_available = True


@pytest.fixture
async def readers() -> Readers:
    return Readers()


async def test_a_recent_token_is_recalled_until_it_expires(readers: Readers) -> None:
    assert await readers.name_of("prometheus") == "prometheus"
    readers.clock.now += REMEMBERED_SECONDS
    assert await readers.is_recalled("prometheus")
    assert not await readers.is_recalled("Prometheus")
    readers.clock.now += 1
    assert not await readers.is_recalled("prometheus")
    await readers.name_of("prometheus")
    assert await readers.is_recalled("prometheus")


async def test_a_revoked_token_is_dropped(readers: Readers) -> None:
    await readers.name_of("prometheus")
    readers.tokens.revoked = {"prometheus", "a guess"}
    assert await readers.name_of("prometheus") is None and await readers.name_of("a guess") is None
    assert not await readers.is_recalled("prometheus") and not await readers.is_recalled("a guess")


async def test_the_number_of_tokens_is_bounded(readers: Readers) -> None:
    """The most recent ones stay, because scrapers return regularly."""
    names = [str(number) for number in range(2 * MAX_REMEMBERED)]
    for name in names:
        await readers.name_of("0")
        await readers.name_of(name)
    assert sum([await readers.is_recalled(name) for name in names]) == MAX_REMEMBERED
    assert await readers.is_recalled("0")
