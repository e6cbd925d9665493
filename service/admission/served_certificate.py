"""TLS context of a server whose certificate is replaced while it runs. A handshake uses the certificate that is loaded
when it begins; open connections go on. A private key is in no file of a disk where the system has files in memory."""

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from datetime import datetime

from service.admission.certificates import BadCertificate, KeyedCertificate, read_certificate, require_key


class ServedCertificate:
    """`context` is for the listener. Before the first `load` it has no certificate, and handshakes fail."""

    def __init__(self) -> None:
        self.keyed: KeyedCertificate | None = None
        self.expires: datetime | None = None
        self.context = _server_context()
        self._loaded = self.context
        # The callback is also called for clients that send no name. Loading another certificate into one context is no
        # alternative: it would keep the earlier one if that has a key of another type.
        self.context.sni_callback = self._choose

    def load(self, keyed: KeyedCertificate) -> bool:
        """Whether it is another one than before. Raises BadCertificate; the one before then stays."""
        if keyed == self.keyed:
            return False
        require_key(keyed)
        expires = read_certificate(keyed.certificate).expires
        context = _server_context()
        try:
            with _file(keyed.certificate + b"\n" + keyed.key) as path:
                context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise BadCertificate(f"is refused by the TLS library ({error.reason or 'no reason given'})") from None
        self.keyed, self.expires, self._loaded = keyed, expires, context
        return True

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._loaded


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[str]:
    """The ssl module reads certificates only from files."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("certificate"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
