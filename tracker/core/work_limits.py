"""The limit on requests of one address to the listener of work distribution.

It counts like the limits of announces (rate_limits.py): a table of fixed size here, and the sum over all trackers in
the store, shared once a second by workers/admission.py. IPv6 counts by /64.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from tracker.bittorrent import Address, is_routable
from tracker.core.rate_limits import is_exempt, subject_key, subject_text, whole_network
from tracker.core.request_counts import LocalCounts, Sketch, network
from tracker.settings.public import LimitSettings
from tracker.settings.reload import LiveSettings
from tracker.store.access.rate_limits import Hit, RateLimitState

WORK = "work"
MAX_SUBJECTS = 4096
"""Different addresses whose requests wait for the store."""


class WorkLimits:
    """The limit of one process, as workers/admission.py shares it."""

    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        self._hits: dict[bytes, int] = {}
        self._local = LocalCounts()
        self._until: dict[bytes, float] = {}
        self._shared: Sequence[RateLimitState] = ()
        self._settings: LimitSettings | None = None
        self.max: dict[str, int] = {}
        self._apply_settings()

    def _apply_settings(self) -> None:
        """Applies changed settings; the counts of this minute start again."""
        settings = self._live.current.limits
        if settings is self._settings:
            return
        self._settings = settings
        self.enabled = settings.enabled
        self._exempt = tuple(map(whole_network, settings.exempt))
        self._all_addresses = settings.private_addresses
        self.max = {WORK: settings.work_requests_minute}
        self._sketch = Sketch(settings.work_requests_minute)

    def wait_seconds(self, address: Address, now: float) -> float:
        """Counts a request at ``now`` (epoch s). Returns for how long its address gets nothing; 0: it is answered."""
        self._apply_settings()
        if not self.enabled or not address or not (self._all_addresses or is_routable(address)):
            return 0.0
        net = network(address)
        hits = self._sketch.add(net)
        if hits and (net in self._hits or len(self._hits) < MAX_SUBJECTS):
            self._hits[net] = self._hits.get(net, 0) + hits
        return max(0.0, self._until.get(net, 0.0) - now)

    def take(self) -> list[Hit]:
        """The requests since the last call, without exempt networks."""
        taken, self._hits = self._hits, {}
        hits = [Hit(WORK, subject_text(net), n) for net, n in taken.items() if not is_exempt(net, self._exempt)]
        self._local.add(hits)
        return hits

    def learn(self, states: Sequence[RateLimitState]) -> None:
        """Replaces the addresses above the limit by those of the store."""
        self._shared = states
        self._take_over(states)

    def decide_alone(self, hits: Sequence[Hit], now: float) -> None:
        """Used while the store is unavailable: adds what this process counted."""
        self._take_over([*self._shared, *self._local.decide(hits, self.max, now)])

    def _take_over(self, states: Sequence[RateLimitState]) -> None:
        self._until = {}
        for state in states:
            if state.limit == WORK:
                with suppress(ValueError):  # not written by a tracker
                    net = subject_key(state.subject)
                    self._until[net] = max(state.until, self._until.get(net, 0.0))

    def begin_window(self) -> None:
        """Starts the next minute: counts that were not reported are dropped."""
        self._sketch.clear()
        self._local.begin_window()

    def networks_to_count(self) -> list[bytes]:
        return []

    def know_entries(self, entries: Mapping[bytes, int]) -> None:
        """The limit does not depend on an address's peers."""
