"""Takes credentials out of anything that is about to be shown: log events, error messages, descriptions.
It errs on the side of hiding: a masked harmless value costs a look, an unmasked secret costs a rotation."""

import re
from collections.abc import Mapping
from typing import Final

MASK: Final = "***"

_SECRET_WORDS: Final = frozenset(
    {
        "access_key",
        "account_key",
        "api_key",
        "apikey",
        "assertion",
        "authorization",
        "connection_string",
        "credential",
        "credentials",
        "jwt",
        "key_data",
        "passphrase",
        "passwd",
        "password",
        "private_key",
        "secret",
        "secret_key",
        "shared_key",
        "token",
    }
)
_SECRET_ENDINGS: Final = tuple(f"_{word}" for word in sorted(_SECRET_WORDS))
# Where a new word begins in clientSecret and SASToken.
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# Everything between `://` and the last `@` is taken for a credential, also where a password holds a slash,
# a quote or an at sign that should have been escaped: hence greedy, and ended only by white space.
_USERINFO: Final = re.compile(r"(?<=://)\S*@")
_BEARER: Final = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)
_ASSIGNED: Final = re.compile(
    r"\b([\w-]*(?:password|passwd|passphrase|secret|token|assertion|authorization|signature|jwt|connection[_-]?string|key[_-]?data"
    r"|(?:api|access|account|private|secret|shared)[_-]?key|identity[_-]header|external_?id)"
    r"|(?:[\w-]*[_-])?sig)(\\*[\"']?\s*[=:]\s*)"
    r"(?!\*\*\*)(\\+\"[^\"\\]*\\+\"|\"[^\"]*\"|'[^']*'|[^\s&,;\"'}\])]+)",
    re.IGNORECASE,
)

# Parts of all the names in that pattern.
_ASSIGNED_WORDS: Final = (
    "passw", "passphrase", "secret", "token", "assertion", "authorization", "sig", "jwt", "connection", "key", "header",
    "external",
)  # fmt: skip
# Three parts in base64url, five where it is encrypted. The first is a JSON object: `{"` is eyJ there, and `{ "` eyAi.
_JWT: Final = re.compile(r"ey(?:J|Ai)[\w-]{8,}(?:\.[\w-]*){2,4}")
# One whose end is cut off is a key all the same. Line breaks may be written as \n, or be gone.
_PEM: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
# The same in base64, as kubeconfig files and Secrets have it. Nobody can tell a certificate from a key there.
# It may be wrapped: lines of a key are long, and the last one ends it.
_PEM_BASE64: Final = re.compile(
    r"LS0tLS1CRUdJTi[\w+/=-]+(?:(?:\\n|\s)+[\w+/=-]{40,})*(?:(?:\\n|\s)+[\w+/-]*={1,2}(?!\w))?"
)


def names_secret(key: str) -> bool:
    """Whether a value under this key is a credential: `password`, `client-secret`, `clientSecret`; not
    `password_file`."""
    word = _HUMP.sub("_", key).lower().replace("-", "_")
    return word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS)


def mask_text(text: str) -> str:
    if "://" in text and "@" in text:
        text = _USERINFO.sub(f"{MASK}@", text)
    if "PRIVATE KEY-----" in text:
        text = _PEM.sub(MASK, text)
    if "LS0tLS1CRUdJTi" in text:
        text = _PEM_BASE64.sub(MASK, text)
    if "eyJ" in text or "eyAi" in text:
        text = _JWT.sub(MASK, text)
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
