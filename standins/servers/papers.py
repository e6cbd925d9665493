"""What a local server needs to speak TLS: an authority's certificate, its own, and the key to that.
A server with them answers at a second port, where its peers and clients meet; the plain one stays for set-up."""

from dataclasses import dataclass
from pathlib import Path

from service.settings import TlsSettings


@dataclass(frozen=True, slots=True)
class Papers:
    """The certificate serves both sides, for servers are clients of each other."""

    ca: Path
    certificate: Path
    key: Path

    def options(self) -> dict[str, str]:
        """Whoever connects must show a certificate, and servers speak TLS among themselves, too."""
        return {
            "tls-ca-cert-file": str(self.ca),
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.key),
            "tls-auth-clients": "yes",
            "tls-replication": "yes",
        }

    def settings(self) -> TlsSettings:
        return TlsSettings(ca_file=self.ca, cert_file=self.certificate, key_file=self.key)
