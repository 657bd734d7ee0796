"""Settings of the change feed and its webhooks."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from tracker.settings.types import Reloaded, Section

MAX_WEBHOOKS = 8
MIN_SECRET_LENGTH = 16


def _webhook_urls(urls: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    """The error names the position in the list, because a URL may contain a secret."""
    for number, url in enumerate(urls, 1):
        text = url.get_secret_value()
        try:
            parts = urlsplit(text)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid or "@" in parts.netloc or "#" in text or " " in text or not text.isprintable():
            raise ValueError(f"number {number} is not an http:// or https:// URL without user and fragment")
    if len({url.get_secret_value() for url in urls}) < len(urls):
        raise ValueError("a URL is given twice")
    return urls


WebhookUrls = Annotated[tuple[SecretStr, ...], AfterValidator(_webhook_urls)]


class ChangeSettings(Section):
    """The change feed, and the webhooks that send it."""

    max_entries: Reloaded[Annotated[int, Field(ge=0, le=10_000_000)]] = Field(
        0,
        description="About how many changes the feed keeps, the newest: who joined and left swarms, completions, "
        "hit-and-runs. A change takes about 200 bytes of the store. 0: no changes are recorded.",
    )
    updates_seconds: Annotated[int, Field(ge=0, le=3600)] = Field(
        0,
        description="How often the feed tells that a peer has announced: `updated`, at most once in so many seconds "
        "for each peer, with its values then. 0: it does not tell.",
    )
    webhook_urls: Annotated[WebhookUrls, Field(max_length=MAX_WEBHOOKS)] = Field(
        (),
        description="Where each change is posted, in signed batches: `http://` or `https://` URLs. Needs `max_entries` "
        "and a secret for each URL.",
    )
    webhook_secret: SecretStr | None = Field(
        None, description=f"The key of the signatures for the first URL, at least {MIN_SECRET_LENGTH} characters."
    )
    webhook_secrets: Annotated[tuple[SecretStr, ...], Field(max_length=MAX_WEBHOOKS - 1)] = Field(
        (), description="The keys of the signatures for the other URLs, in their order. No two URLs have the same."
    )

    @property
    def receivers(self) -> dict[str, str]:
        """The secret of each webhook URL. A secret may be set without a URL."""
        secrets = ([self.webhook_secret] if self.webhook_secret else []) + [*self.webhook_secrets]
        return {
            url.get_secret_value(): secret.get_secret_value()
            for url, secret in zip(self.webhook_urls, secrets, strict=False)
        }

    @field_validator("webhook_secret", "webhook_secrets")
    @classmethod
    def _are_long_enough(
        cls, value: SecretStr | tuple[SecretStr, ...] | None
    ) -> SecretStr | tuple[SecretStr, ...] | None:
        secrets = value if isinstance(value, tuple) else (value,) if value and value.get_secret_value() else ()
        if any(len(each.get_secret_value()) < MIN_SECRET_LENGTH for each in secrets):
            raise ValueError(f"must have at least {MIN_SECRET_LENGTH} characters")
        return value

    @model_validator(mode="after")
    def _is_complete(self) -> "ChangeSettings":
        if self.webhook_urls and not (self.webhook_secret and self.webhook_secret.get_secret_value()):
            raise ValueError("TRACKER_CHANGES__WEBHOOK_URLS needs TRACKER_CHANGES__WEBHOOK_SECRET")
        if self.webhook_urls and len(self.webhook_urls) != 1 + len(self.webhook_secrets):
            raise ValueError("TRACKER_CHANGES__WEBHOOK_SECRETS has a secret for each URL but the first")
        if self.webhook_urls and len(set(self.receivers.values())) < len(self.webhook_urls):
            raise ValueError("two URLs of TRACKER_CHANGES__WEBHOOK_URLS have the same secret")
        return self
