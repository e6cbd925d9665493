"""TLS contexts from the certificates of a kubeconfig: authority, client certificate, key. A private key is on disk only
while the ssl module reads it."""

import hashlib
import ssl
import tempfile

from service.kubernetes.errors import Unavailable


class TlsContexts:
    """One TLS context per set of certificates: connections are pooled by context, so it must not change without
    need."""

    def __init__(self) -> None:
        self._key = b""
        self._context: ssl.SSLContext | None = None

    def get(self, authority: bytes, certificate: bytes, key: bytes, *, verify: bool) -> ssl.SSLContext:
        parts = (authority, certificate, key, b"1" if verify else b"0")
        fingerprint = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()
        if self._context is None or fingerprint != self._key:
            self._context, self._key = _context(authority, certificate, key, verify=verify), fingerprint
        return self._context


def _context(authority: bytes, certificate: bytes, key: bytes, *, verify: bool) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        # CAs of many clusters lack extensions that newer Pythons require; kubectl does not require them either.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate:
            # The ssl module reads certificates only from files.
            with tempfile.NamedTemporaryFile() as file:
                file.write(certificate + b"\n" + key)
                file.flush()
                context.load_cert_chain(file.name)
    except (ssl.SSLError, ValueError) as error:
        raise Unavailable(f"the certificates of the kubeconfig can't be used: {type(error).__name__}") from None
    return context
