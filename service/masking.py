"""Masking of credentials in log events, error messages and descriptions.
In doubt a value is masked: an unmasked secret is worse than a masked harmless value."""

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
# Word boundaries in clientSecret and SASToken.
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# Everything between `://` and the last `@` counts as a credential, also where a password contains an unescaped slash,
# quote or at sign: hence greedy, and ended only by white space.
_USERINFO: Final = re.compile(r"(?<=://)\S*@")
_BEARER: Final = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)
# An API call of Secrets Manager, as in `secretsmanager:DeleteSecret: ThrottlingException`, is no name of a secret.
_ASSIGNED: Final = re.compile(
    r"(?<!secretsmanager:)\b([\w-]*(?:password|passwd|passphrase|secret|token|assertion|authorization|signature|jwt|connection[_-]?string|key[_-]?data"
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
# A key may be cut off at the end. Line breaks may be written as \n, or be missing.
_PEM: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
# The same in base64, as in kubeconfig files and Secrets, where certificates and keys can't be distinguished. It may be
# wrapped: the lines of a key are long, and the last one ends it.
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
    # Long lists of ids are masked by the thousand a second, so that patterns that can't match are skipped.
    lowered = text.casefold()
    if "bearer" in lowered or "basic" in lowered:
        text = _BEARER.sub(rf"\1 {MASK}", text)
    if ("=" in text or ":" in text) and any(word in lowered for word in _ASSIGNED_WORDS):
        text = _ASSIGNED.sub(rf"\1\2{MASK}", text)
    return text


def is_harmless(text: str) -> bool:
    """Whether masking leaves the text unchanged."""
    return mask_text(text) == text


def mask(value: object) -> object:
    """A masked copy of a value. Containers are masked recursively; other objects are returned as they are."""
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
