"""Access to /metrics while tokens cannot be looked up."""

from tests.store.harness import Clock
from tracker.admin.auth.auth import MAX_REMEMBERED, REMEMBERED_SECONDS, MetricsAuthCache


def test_a_recent_token_is_recalled_until_it_expires() -> None:
    clock = Clock()
    cache: MetricsAuthCache[str] = MetricsAuthCache(clock)
    cache.note("secret", "prometheus")
    clock.now += REMEMBERED_SECONDS
    assert cache.recall("secret") == "prometheus"
    assert cache.recall("Secret") is None
    clock.now += 1
    assert cache.recall("secret") is None
    cache.note("secret", "prometheus")
    assert cache.recall("secret") == "prometheus"


def test_a_revoked_token_is_dropped() -> None:
    cache: MetricsAuthCache[str] = MetricsAuthCache(Clock())
    cache.note("secret", "prometheus")
    cache.note("secret", None)
    cache.note("a guess", None)
    assert cache.recall("secret") is None and cache.recall("a guess") is None


def test_the_number_of_tokens_is_bounded() -> None:
    """The most recent ones stay, because scrapers return regularly."""
    cache: MetricsAuthCache[int] = MetricsAuthCache(Clock())
    for number in range(2 * MAX_REMEMBERED):
        cache.note("0", 0)
        cache.note(str(number), number)
    known = [cache.recall(str(number)) for number in range(2 * MAX_REMEMBERED)]
    assert sum(who is not None for who in known) == MAX_REMEMBERED
    assert cache.recall("0") == 0
