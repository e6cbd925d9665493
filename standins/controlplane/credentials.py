"""Credentials of a control plane: the key that signs service account tokens, and the admin's token.
The key is written without a cryptography library: a P-256 private key is 32 random bytes in a DER envelope."""

import base64
import secrets
import textwrap
from pathlib import Path
from typing import Final

# SEC 1, appendix C.4: SEQUENCE { INTEGER 1, OCTET STRING (32 bytes), [0] { OID prime256v1 } }. The public key is
# optional; readers derive it.
_BEFORE: Final = bytes.fromhex("30310201010420")
_AFTER: Final = bytes.fromhex("a00a06082a8648ce3d030107")
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def write_signing_key(path: Path) -> None:
    number = secrets.randbelow(_ORDER - 1) + 1
    text = base64.b64encode(_BEFORE + number.to_bytes(32, "big") + _AFTER).decode()
    lines = "\n".join(textwrap.wrap(text, 64))
    write_secret(path, f"-----BEGIN EC PRIVATE KEY-----\n{lines}\n-----END EC PRIVATE KEY-----\n")


def write_admin_token(path: Path) -> str:
    """The token file of kube-apiserver: token, user, uid, groups. Members of this group are allowed everything."""
    token = secrets.token_urlsafe(24)
    write_secret(path, f'{token},admin,admin,"system:masters"\n')
    return token


def write_secret(path: Path, text: str) -> None:
    """For the owner's eyes only, from the first moment on."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)
