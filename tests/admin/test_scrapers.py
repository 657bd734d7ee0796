"""Who may read the figures while nobody can be looked up."""

from tests.store.harness import Clock
from tracker.admin.scrapers import MOST_REMEMBERED, REMEMBERED_SECONDS, Scrapers


def test_who_was_known_shortly_before_is_known() -> None:
    clock = Clock()
    scrapers: Scrapers[str] = Scrapers(clock)
    scrapers.note("secret", "prometheus")
    clock.now += REMEMBERED_SECONDS
    assert scrapers.recall("secret") == "prometheus"
    assert scrapers.recall("Secret") is None
    clock.now += 1
    assert scrapers.recall("secret") is None
    scrapers.note("secret", "prometheus")
    assert scrapers.recall("secret") == "prometheus"


def test_who_is_no_longer_known_is_forgotten() -> None:
    scrapers: Scrapers[str] = Scrapers(Clock())
    scrapers.note("secret", "prometheus")
    scrapers.note("secret", None)
    scrapers.note("a guess", None)
    assert scrapers.recall("secret") is None and scrapers.recall("a guess") is None


def test_only_so_many_are_remembered() -> None:
    """Those who came last: whoever scrapes comes again and again."""
    scrapers: Scrapers[int] = Scrapers(Clock())
    for number in range(2 * MOST_REMEMBERED):
        scrapers.note("0", 0)
        scrapers.note(str(number), number)
    known = [scrapers.recall(str(number)) for number in range(2 * MOST_REMEMBERED)]
    assert sum(who is not None for who in known) == MOST_REMEMBERED
    assert scrapers.recall("0") == 0
