"""TLS certificates for servers of a test, made with openssl: an authority, and a certificate of it for 127.0.0.1.
The certificate serves both sides, as servers that replicate each other need it. The authority has no key usage, like
those of many clusters, unless it shall be `strict`; Python 3.13 and later trust it only without
`VERIFY_X509_STRICT`."""

import subprocess
from pathlib import Path

from standins.redis_servers import TlsFiles


def make_tls_files(directory: Path, *, strict: bool = False) -> TlsFiles:
    def make(name: str, *words: str) -> None:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        files = ("-keyout", f"{name}.key", "-out", f"{name}.crt", "-days", "2")
        command = ["openssl", "req", "-x509", *key, *files, "-subj", f"/CN={name}", *words]
        subprocess.run(command, cwd=directory, check=True, capture_output=True)

    make("ca", *(("-addext", "keyUsage=critical,keyCertSign,cRLSign") if strict else ()))
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "basicConstraints=CA:FALSE")
    make("server", *signed, "-addext", "subjectAltName=IP:127.0.0.1")
    return TlsFiles(directory / "ca.crt", directory / "server.crt", directory / "server.key")
