"""Masks of the secrets in text for logs and messages."""

import re

MASK = "***"
SECRET_NAMES = r"(?:pass(?:key|word|wd|phrase)|secret|token|authorization|cookie)"  # noqa: S105  # names, not a secret
_SECRETS = (
    # A server quotes the arguments of an unknown command; a passkey may be among them.
    (re.compile(r",? with args beginning with[^\n]*", re.IGNORECASE), ""),
    # /<passkey>/announce, also with doubled slashes; not a host before /announce, and not announce.py.
    (
        re.compile(r"(?<!:)(?<!:/)/[^/\s?\"']+(/+(?:announce|scrape)(?![\w]|\.py\b|\.lua\b))", re.IGNORECASE),
        rf"/{MASK}\1",
    ),
    # /announce/<passkey>
    (re.compile(r"(/(?:announce|scrape)/+)[^/\s?&\"']+", re.IGNORECASE), rf"\1{MASK}"),
    # scheme://user:password@host; greedy, because an unescaped @ or / may be part of the password.
    (re.compile(r"(\w://)[^\s\"'<>]*@"), rf"\1{MASK}@"),
    # ?passkey=…, password='…', "token": "…"
    (
        re.compile(rf"({SECRET_NAMES}[\"']?\s*[=:]\s*b?)(\"[^\"]*\"|'[^']*'|[^\s&,;)}}\]]+)", re.IGNORECASE),
        rf"\1{MASK}",
    ),
    # The secret by which a client proves that an announce is its own.
    (re.compile(r"([?&]key=)[^\s&]+", re.IGNORECASE), rf"\1{MASK}"),
    # Tokens, sign-in links and sessions of the admin port.
    (re.compile(r"(swk_[0-9a-f]{0,12})_[\w-]+"), rf"\1_{MASK}"),
    (re.compile(r"(sign-in#|tracker_session=)[\w-]+"), rf"\1{MASK}"),
    # The key of a user in the store contains the passkey.
    (re.compile(r"(:user:)[^\s\"',)\]]+"), rf"\1{MASK}"),
)


def mask(text: str) -> str:
    """``text`` with passkeys, passwords and tokens masked in all known places."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text
