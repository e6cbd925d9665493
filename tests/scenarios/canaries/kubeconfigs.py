"""Kubeconfigs, one for each form of credential that one may hold or that a program or server may issue for it.
Programs that issue credentials fail while a file `broken` lies beside them, and then print all that they know."""

import base64
import shlex
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from standins.redis_servers import TlsFiles
from tests.scenarios.canaries.credentials import Canaries

WORKING: Final = (
    "token", "token-file", "password", "plugin", "plugin-key", "key", "key-file", "oidc", "gcloud", "secret",
)  # fmt: skip
"""Each leads to a cluster of its own; the last is a kubeconfig in a Secret of the first."""
KEYS: Final = ("plugin-key", "key", "key-file")
"""Those among them that authenticate by a client certificate."""
PROGRAMS: Final = ("plugin", "plugin-key", "gcloud")
"""Those for which a program of the same name issues credentials."""
NOWHERE: Final = ("proxy", "broken-key")
"""A proxy that refuses all requests, and an invalid key."""
EXEC_VERSION: Final = "client.authentication.k8s.io/v1"


def serving(tls_files: TlsFiles, *, asks: bool = True) -> ssl.SSLContext:
    """A server's side of TLS; one that asks lets in only who has a certificate of the same authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls_files.ca)
    context.load_cert_chain(tls_files.certificate, tls_files.key)
    context.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
    return context


class CanaryKubeconfigs:
    """`urls` are the addresses of the gateways by way, `issuer` and `proxy` those of these servers."""

    def __init__(
        self,
        folder: Path,
        known: Canaries,
        urls: Mapping[str, str],
        tls_files: Mapping[str, TlsFiles],
        *,
        issuer: str,
        proxy: str,
    ) -> None:
        self._folder, self._known, self._urls, self._papers = folder, known, urls, tls_files
        self._issuer, self._proxy = issuer, proxy

    def write(self, name: str, text: str, mode: int = 0o600) -> Path:
        path = self._folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def program(self, name: str, printed: object, *shown: str) -> str:
        """One that prints this as JSON, or fails and shows the rest."""
        said, words = shlex.quote(msgspec.json.encode(printed).decode()), shlex.quote(" ".join(shown))
        broken = shlex.quote(str(self._folder / "broken"))
        text = (
            f"#!/bin/sh\nif [ -e {broken} ]; then\n  echo {name} >> {broken}\n"
            f'  echo {words} "$@" "$PLUGIN_VARIABLE" >&2\n  exit 1\nfi\nprintf %s {said}\n'
        )
        return str(self.write(name, text, stat.S_IRWXU))

    def breaks(self) -> None:
        """Every program fails from now on."""
        self.write("broken", "")

    def failed(self) -> set[str]:
        """Programs that have failed since."""
        return set((self._folder / "broken").read_text().split())

    def mended(self) -> None:
        (self._folder / "broken").unlink()

    def files(self) -> dict[str, str]:
        """Paths of kubeconfigs, by way."""
        users: dict[str, dict[str, Any]] = {
            "token": {"token": self._word("token")},
            "token-file": {"tokenFile": str(self.write("token", self._word("token-file")))},
            "password": {"username": "somebody", "password": self._word("password")},
            "plugin": self._plugin(),
            "plugin-key": self._plugin_key(),
            "key": {
                "client-certificate-data": encoded(self._papers["key"].certificate.read_text()),
                "client-key-data": encoded(self._papers["key"].key.read_text()),
            },
            "key-file": {
                "client-certificate": str(self._papers["key-file"].certificate),
                "client-key": str(self._papers["key-file"].key),
            },
            "oidc": self._oidc(),
            "gcloud": self._gcloud(),
        }
        texts = {way: self._kubeconfig(way, user) for way, user in users.items()}
        leading = f"http://somebody:{self._word('proxy')}@{self._proxy}"
        texts["proxy"] = self._kubeconfig("token", {}, **{"proxy-url": leading})
        none = encoded(not_a_key(self._word("broken-key")))
        user = {"client-certificate-data": none, "client-key-data": none}
        texts["broken-key"] = self._kubeconfig("broken-key", user, server="https://127.0.0.1:9")
        return {way: str(self.write(f"kubeconfig-{way}", text)) for way, text in texts.items()}

    def in_secret(self) -> str:
        """The kubeconfig that is to be put into a Secret."""
        return self._kubeconfig("secret", {"token": self._word("secret")})

    def _word(self, way: str) -> str:
        return self._known[f"kubernetes {way}"]

    def _plugin(self) -> dict[str, Any]:
        issued = self._word("plugin")
        argument = self._word("plugin argument")
        return {"exec": {
            "apiVersion": EXEC_VERSION, "command": self.program("plugin", _issued(token=issued), issued),
            "args": ["--client-secret", argument], "interactiveMode": "Never",
            "env": [{"name": "PLUGIN_VARIABLE", "value": self._word("plugin variable")}],
        }}  # fmt: skip

    def _plugin_key(self) -> dict[str, Any]:
        tls_files = self._papers["plugin-key"]
        certificate, key = tls_files.certificate.read_text(), tls_files.key.read_text()
        issued = _issued(clientCertificateData=certificate, clientKeyData=key)
        program = self.program("plugin-key", issued, key)
        return {"exec": {"apiVersion": EXEC_VERSION, "command": program, "interactiveMode": "Never"}}

    def _oidc(self) -> dict[str, Any]:
        config = {
            "idp-issuer-url": self._issuer, "client-id": "knell",
            "client-secret": self._word("oidc client secret"), "refresh-token": self._word("oidc refresh token"),
        }  # fmt: skip
        return {"auth-provider": {"name": "oidc", "config": config}}

    def _gcloud(self) -> dict[str, Any]:
        issued = {"credential": {"access_token": self._word("gcloud"), "token_expiry": "2099-01-01T00:00:00Z"}}
        program = self.program("gcloud", issued, self._word("gcloud"))
        return {"auth-provider": {"name": "gcp", "config": {"cmd-path": program, "cmd-args": "config"}}}

    def _kubeconfig(self, way: str, user: Mapping[str, Any], *, server: str = "", **cluster: str) -> str:
        entry = {"server": server or self._urls[way], **cluster}
        if way in KEYS:
            entry["certificate-authority"] = str(self._papers[way].ca)
        return msgspec.json.encode(
            {
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": entry}], "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        ).decode()  # fmt: skip


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def not_a_key(word: str) -> str:
    return f"-----BEGIN PRIVATE KEY-----\n{word}\n-----END PRIVATE KEY-----\n"


def _issued(**status: str) -> dict[str, object]:
    return {"kind": "ExecCredential", "apiVersion": EXEC_VERSION, "status": status}
