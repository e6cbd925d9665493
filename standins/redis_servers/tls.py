"""TLS files of a local server: CA certificate, server certificate and key.
A server with TLS listens on a second port for clients and peers; the plain port remains for administration."""

from dataclasses import dataclass
from pathlib import Path

from service.settings import TlsSettings


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The certificate is for server and client authentication, since servers connect to each other."""

    ca: Path
    certificate: Path
    key: Path

    def options(self) -> dict[str, str]:
        """Server options: clients must present a certificate, and replication uses TLS."""
        return {
            "tls-ca-cert-file": str(self.ca),
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.key),
            "tls-auth-clients": "yes",
            "tls-replication": "yes",
        }

    def settings(self) -> TlsSettings:
        return TlsSettings(ca_file=self.ca, cert_file=self.certificate, key_file=self.key)
