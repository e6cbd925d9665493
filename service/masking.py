"""Takes credentials out of anything that is about to be shown: log events, error messages, descriptions.
It errs on the side of hiding: a masked harmless value costs a look, an unmasked secret costs a rotation."""

import re
from collections.abc import Mapping
from typing import Final

MASK: Final = "***"

_SECRET_WORDS: Final = frozenset(
    {
        "access_key",
        "api_key",
        "apikey",
        "assertion",
        "authorization",
        "connection_string",
        "credential",
        "credentials",
        "passphrase",
        "passwd",
        "password",
        "private_key",
        "secret",
        "secret_key",
        "token",
    }
)
_SECRET_ENDINGS: Final = tuple(f"_{word}" for word in sorted(_SECRET_WORDS))

# Everything between `://` and the last `@` is taken for a credential, also where a password holds a slash,
# a quote or an at sign that should have been escaped: hence greedy, and ended only by white space.
_USERINFO: Final = re.compile(r"(?<=://)\S*@")
_BEARER: Final = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)
_ASSIGNED: Final = re.compile(
    r"\b([\w-]*(?:password|passwd|secret|token|assertion|authorization|signature|api_?key|access_?key|identity[_-]header|external_?id)"
    r"|(?:[\w-]*[_-])?sig)([\"']?\s*[=:]\s*)"
    r"(?!\*\*\*)(\"[^\"]*\"|'[^']*'|[^\s&,;\"'}\])]+)",
    re.IGNORECASE,
)

# Parts of all the names in that pattern.
_ASSIGNED_WORDS: Final = ("passw", "secret", "token", "assertion", "authorization", "sig", "key", "header", "external")


def names_secret(key: str) -> bool:
    """Whether a value under this key is a credential: `password`, `client-secret`; not `password_file`."""
    word = key.lower().replace("-", "_")
    return word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS)


def mask_text(text: str) -> str:
    if "://" in text and "@" in text:
        text = _USERINFO.sub(f"{MASK}@", text)
    # Long lists of ids come through here by the thousand a second: what can't match is not searched.
    lowered = text.casefold()
    if "bearer" in lowered or "basic" in lowered:
        text = _BEARER.sub(rf"\1 {MASK}", text)
    if ("=" in text or ":" in text) and any(word in lowered for word in _ASSIGNED_WORDS):
        text = _ASSIGNED.sub(rf"\1\2{MASK}", text)
    return text


def is_harmless(text: str) -> bool:
    """Whether it would be shown word for word."""
    return mask_text(text) == text


def mask(value: object) -> object:
    """A copy of a value as it may be shown; containers are walked, other objects are left to the renderer."""
    match value:
        case str():
            return mask_text(value)
        case bytes():
            return mask_text(value.decode(errors="replace"))
        case Mapping():
            return {key: mask_entry(str(key), item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [mask(item) for item in value]
        case BaseException():
            return mask_text(f"{type(value).__name__}: {value}")
        case _:
            return value


def mask_entry(key: str, value: object) -> object:
    if value is not None and names_secret(key):
        return MASK
    return mask(value)
