"""How many registered torrents take part in the DHT."""

from dataclasses import dataclass

NEARLY_NONE = 20
"""Fewer than one torrent in so many."""


@dataclass(frozen=True, slots=True)
class Participation:
    """Counted in up to some thousand torrents, evenly spread over the register."""

    registered: int
    looked_at: int
    """How many of the registered torrents were looked at."""
    part: int
    """How many of those take part."""
    unknown: int = 0
    """How many of those do not take part only because their privacy is unknown."""

    @property
    def estimate(self) -> int:
        """How many torrents take part; exact if all were looked at."""
        return round(self.part * self.registered / self.looked_at) if self.looked_at else 0

    @property
    def is_exact(self) -> bool:
        return self.looked_at >= self.registered

    @property
    def text(self) -> str:
        """One sentence without a full stop."""
        if self.is_exact:
            return f"{self.part:,} of {self.registered:,} registered torrents take part"
        sample = f"estimated from {self.looked_at:,}"
        return f"about {self.estimate:,} of {self.registered:,} registered torrents take part ({sample})"

    @property
    def sentence(self) -> str:
        """The text, and the advice if there is one."""
        return f"{self.text}: {self.advice}" if self.advice else self.text

    @property
    def advice(self) -> str:
        """What to set where nearly no torrent takes part; else empty."""
        if not self.unknown or self.part * NEARLY_NONE >= self.looked_at:
            return ""
        return "set TRACKER_DHT__TORRENTS=all to include torrents of unknown privacy"
