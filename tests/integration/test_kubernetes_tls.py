"""TLS to an API server: authorities, client certificates, names, and the service account of a pod."""

import base64
import json
import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from service.kubernetes import Unauthorized, Unavailable, connect, endpoint
from service.settings import ClusterSettings
from tests.scripted_api import kubeconfig, namespace, scripted_api, status

TOKEN = "the-token-of-a-service-account"


@dataclass(frozen=True)
class TlsCertificates:
    """An authority, a server's certificate for 127.0.0.1 and knell.test, and a client's."""

    folder: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def data(self, name: str) -> str:
        return base64.b64encode((self.folder / name).read_bytes()).decode()

    def server(self, *, asks: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.path("server.crt"), self.path("server.key"))
        if asks:
            context.load_verify_locations(self.path("ca.crt"))
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> TlsCertificates:
    folder = tmp_path_factory.mktemp("papers")

    def make(name: str, *words: str) -> None:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        files = ("-keyout", f"{name}.key", "-out", f"{name}.crt", "-days", "2")
        command = ["openssl", "req", "-x509", *key, *files, "-subj", f"/CN={name}", *words]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    make("ca")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "basicConstraints=CA:FALSE")
    make("server", *signed, "-addext", "subjectAltName=IP:127.0.0.1,DNS:knell.test")
    make("client", *signed)
    return TlsCertificates(folder)


async def _answer(request: web.Request) -> web.StreamResponse:
    return namespace(request.path.rpartition("/")[2])


async def _identity(folder: Path, config: bytes) -> str:
    path = folder / "config"
    path.write_bytes(config)
    async with await connect("tls", ClusterSettings(kubeconfig=path)) as cluster:
        return await cluster.identity()


async def test_an_authority_of_the_kubeconfig_is_trusted_and_no_other(papers: TlsCertificates, tmp_path: Path) -> None:
    async with scripted_api(_answer, papers.server()) as address:
        as_data = {"certificate-authority-data": papers.data("ca.crt")}
        assert await _identity(tmp_path, kubeconfig(address, as_data)) == "uid-kube-system"
        as_file = {"certificate-authority": papers.path("ca.crt")}
        assert await _identity(tmp_path, kubeconfig(address, as_file)) == "uid-kube-system"
        with pytest.raises(Unavailable, match="not trusted"):
            await _identity(tmp_path, kubeconfig(address))
        with pytest.raises(Unavailable, match="not trusted"):
            await _identity(tmp_path, kubeconfig(address, {"certificate-authority-data": papers.data("client.crt")}))


async def test_verification_is_left_out_only_where_the_kubeconfig_says_so(
    papers: TlsCertificates, tmp_path: Path
) -> None:
    async with scripted_api(_answer, papers.server()) as address:
        assert await _identity(tmp_path, kubeconfig(address, {"insecure-skip-tls-verify": True})) == "uid-kube-system"


async def test_the_name_that_the_certificate_must_bear_can_be_given(papers: TlsCertificates, tmp_path: Path) -> None:
    trusted = {"certificate-authority-data": papers.data("ca.crt")}
    async with scripted_api(_answer, papers.server()) as address:
        named = {**trusted, "tls-server-name": "knell.test"}
        assert await _identity(tmp_path, kubeconfig(address, named)) == "uid-kube-system"
        with pytest.raises(Unavailable, match="not trusted"):
            await _identity(tmp_path, kubeconfig(address, {**trusted, "tls-server-name": "other.test"}))


async def test_a_client_certificate_is_shown(papers: TlsCertificates, tmp_path: Path) -> None:
    trusted = {"certificate-authority-data": papers.data("ca.crt")}
    as_data = {"client-certificate-data": papers.data("client.crt"), "client-key-data": papers.data("client.key")}
    as_files = {"client-certificate": papers.path("client.crt"), "client-key": papers.path("client.key")}
    async with scripted_api(_answer, papers.server(asks=True)) as address:
        for user in (as_data, as_files):
            assert await _identity(tmp_path, kubeconfig(address, trusted, **user)) == "uid-kube-system"
        with pytest.raises(Unavailable):
            await _identity(tmp_path, kubeconfig(address, trusted))


async def test_a_client_certificate_that_a_plugin_issues_is_shown_and_left_in_no_file(
    papers: TlsCertificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = {"clientCertificateData": "client.crt", "clientKeyData": "client.key"}
    status = {field: (papers.folder / name).read_text() for field, name in issued.items()}
    version = "client.authentication.k8s.io/v1"
    (tmp_path / "issued").write_text(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
    plugin = {"apiVersion": version, "command": "cat", "args": [str(tmp_path / "issued")], "interactiveMode": "Never"}
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    trusted = {"certificate-authority-data": papers.data("ca.crt")}
    async with scripted_api(_answer, papers.server(asks=True)) as address:
        for _ in range(2):
            assert await _identity(tmp_path, kubeconfig(address, trusted, exec=plugin)) == "uid-kube-system"
    assert list(temporary.iterdir()) == []


async def test_the_keys_of_a_user_with_an_auth_provider_are_left_in_no_file(
    papers: TlsCertificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[str] = []

    async def door(request: web.Request) -> web.StreamResponse:
        came.append(request.headers["Authorization"])
        return await _answer(request)

    claims = base64.b64encode(json.dumps({"exp": 4_000_000_000}).encode()).decode().rstrip("=")
    user = {
        "auth-provider": {"name": "oidc", "config": {"id-token": f"head.{claims}.sign"}},
        "client-certificate-data": papers.data("client.crt"),
        "client-key-data": papers.data("client.key"),
    }
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    trusted = {"certificate-authority-data": papers.data("ca.crt")}
    async with scripted_api(door, papers.server(asks=True)) as address:
        assert await _identity(tmp_path, kubeconfig(address, trusted, **user)) == "uid-kube-system"
    assert came == [f"Bearer head.{claims}.sign"]
    assert list(temporary.iterdir()) == []


async def test_a_client_certificate_that_was_renewed_is_shown_on_a_new_connection(
    papers: TlsCertificates, tmp_path: Path
) -> None:
    """The pool must not hand out a connection that was made with another certificate."""
    ports: list[tuple[str, int]] = []

    async def door(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.append((request.transport.get_extra_info("peercert")["serialNumber"], id(request.transport)))
        return status(401, "Unauthorized") if len(ports) == 2 else await _answer(request)

    for name in ("crt", "key"):
        (tmp_path / f"own.{name}").write_bytes((papers.folder / f"client.{name}").read_bytes())
    user = {"client-certificate": str(tmp_path / "own.crt"), "client-key": str(tmp_path / "own.key")}
    async with scripted_api(door, papers.server(asks=True)) as address:
        path = tmp_path / "config"
        path.write_bytes(kubeconfig(address, {"certificate-authority-data": papers.data("ca.crt")}, **user))
        async with await connect("tls", ClusterSettings(kubeconfig=path)) as cluster:
            await cluster.identity()
            for name in ("crt", "key"):
                (tmp_path / f"own.{name}").write_bytes((papers.folder / f"server.{name}").read_bytes())
            await cluster.identity()
    first, refused, renewed = ports
    assert first == refused
    assert renewed[0] != first[0]


async def test_invalid_certificates_are_reported_without_their_content(tmp_path: Path) -> None:
    nonsense = base64.b64encode(b"not a certificate").decode()
    with pytest.raises(Unavailable, match="can't be used"):
        await _identity(tmp_path, kubeconfig("https://127.0.0.1:1", {"certificate-authority-data": nonsense}))
    user = {"client-certificate-data": nonsense, "client-key-data": nonsense}
    with pytest.raises(Unavailable, match="can't be used") as caught:
        await _identity(tmp_path, kubeconfig("https://127.0.0.1:1", **user))
    assert "not a certificate" not in repr(caught.value)


async def test_a_pod_uses_its_service_account_and_reads_it_again(
    papers: TlsCertificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def door(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return status(401, "Unauthorized")
        return await _answer(request)

    monkeypatch.setattr(endpoint, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "ca.crt").write_bytes((papers.folder / "ca.crt").read_bytes())
    (tmp_path / "token").write_text("expired")
    async with scripted_api(door, papers.server()) as address:
        host, _, port = address.removeprefix("https://").rpartition(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        async with await connect("inside", ClusterSettings(in_cluster=True)) as cluster:
            with pytest.raises(Unauthorized):
                await cluster.identity()
            (tmp_path / "token").write_text(TOKEN)
            assert await cluster.identity() == "uid-kube-system"
