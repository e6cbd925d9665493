"""Credentials of a cluster: kubeconfig files, a pod's service account, Secrets, plugins; and no token is ever shown."""

import asyncio
import base64
import logging
import stat
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from service.kubernetes import SECRETS, ClusterError, KubernetesClient, Unauthorized, Unavailable, connect
from service.settings import ClusterSettings
from tests.api_servers import TestApi
from tests.scripted_api import kubeconfig, namespace, scripted_api, settings_for, status

TOKEN = "a-very-secret-token-0123456789"


class TokenCheckingApi:
    """Lets in who has the token of the moment, and notes with what each came."""

    def __init__(self, token: str = TOKEN) -> None:
        self.token = token
        self.came: list[str] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.came.append(request.headers.get("Authorization", ""))
        if self.came[-1] != f"Bearer {self.token}":
            return status(401, "Unauthorized")
        return namespace(request.path.rpartition("/")[2])


@asynccontextmanager
async def _entered(
    door: TokenCheckingApi, folder: Path, clock: Callable[[], float] = time.monotonic, **user: object
) -> AsyncIterator[KubernetesClient]:
    async with (
        scripted_api(door) as address,
        await connect("door", settings_for(address, folder, **user), clock=clock) as cluster,
    ):
        yield cluster


async def test_a_token_of_the_kubeconfig_is_used(tmp_path: Path) -> None:
    door = TokenCheckingApi()
    async with _entered(door, tmp_path, token=TOKEN) as cluster:
        assert await cluster.identity() == "uid-kube-system"
    assert door.came == [f"Bearer {TOKEN}"]


async def test_user_and_password_are_used(tmp_path: Path) -> None:
    door = TokenCheckingApi()
    async with _entered(door, tmp_path, username="me", password="pw") as cluster:
        with pytest.raises(Unauthorized):
            await cluster.identity()
    assert door.came[0] == "Basic " + base64.b64encode(b"me:pw").decode()


async def test_a_rotated_token_file_is_read_again_when_the_old_token_is_refused(tmp_path: Path) -> None:
    door = TokenCheckingApi("first")
    (tmp_path / "token").write_text("first\n")
    async with _entered(door, tmp_path, tokenFile="token") as cluster:
        await cluster.identity()
        door.token = "second"
        (tmp_path / "token").write_text("second\n")
        await asyncio.gather(*(cluster.identity() for _ in range(5)))
    assert door.came[0] == "Bearer first"
    assert door.came[-1] == "Bearer second"


async def test_a_token_is_read_again_after_a_while_without_being_refused(tmp_path: Path) -> None:
    door = TokenCheckingApi("first")
    (tmp_path / "token").write_text("first")
    now = 0.0
    async with _entered(door, tmp_path, lambda: now, tokenFile="token") as cluster:
        await cluster.identity()
        door.token = "second"
        (tmp_path / "token").write_text("second")
        now = 61.0
        await cluster.identity()
    assert door.came == ["Bearer first", "Bearer second"]


async def test_credentials_that_can_not_be_read_again_serve_on(tmp_path: Path) -> None:
    door = TokenCheckingApi()
    now = 0.0
    async with _entered(door, tmp_path, lambda: now, token=TOKEN) as cluster:
        await cluster.identity()
        (tmp_path / "wayward.kubeconfig").unlink()
        now = 61.0
        await cluster.identity()
        door.token = "another"
        with pytest.raises(Unavailable, match="no kubeconfig"):
            await cluster.identity()


async def test_a_kubeconfig_that_names_another_server_now_is_refused(tmp_path: Path) -> None:
    door = TokenCheckingApi()
    async with _entered(door, tmp_path, token=TOKEN) as cluster, scripted_api(TokenCheckingApi("x")) as elsewhere:
        settings_for(elsewhere, tmp_path, token="x")
        door.token = "changed"
        with pytest.raises(Unavailable, match="another server"):
            await cluster.identity()


async def test_a_watch_that_is_refused_reads_the_token_again(tmp_path: Path) -> None:
    door = TokenCheckingApi("first")
    (tmp_path / "token").write_text("first")
    served = msgspec.structs.replace(SECRETS, plural="things")
    async with _entered(door, tmp_path, tokenFile="token") as cluster:
        await cluster.identity()
        door.token = "second"
        (tmp_path / "token").write_text("second")
        watch = cluster.watch(served, "ns", "", "5", silence=timedelta(seconds=5))
        assert [change async for change in watch] == []
    assert door.came == ["Bearer first", "Bearer first", "Bearer second"]


def _plugin(folder: Path, expires: str) -> dict[str, object]:
    """A user whose token comes from a program, which counts its runs in its tokens."""
    script = folder / "plugin"
    program = f"""#!{sys.executable}
import json, pathlib
runs = pathlib.Path({str(folder / "runs")!r})
count = int(runs.read_text()) + 1 if runs.exists() else 1
runs.write_text(str(count))
status = {{"token": f"issued-{{count}}"}}
if {expires!r}:
    status["expirationTimestamp"] = {expires!r}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}))
"""
    script.write_text(program)
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./plugin",
        "args": [],
        "interactiveMode": "Never",
    }


@pytest.mark.parametrize("expires", ["", "2099-01-01T00:00:00Z"])
async def test_a_plugin_is_asked_once_and_again_when_its_token_is_refused(tmp_path: Path, expires: str) -> None:
    door = TokenCheckingApi("issued-1")
    async with _entered(door, tmp_path, exec=_plugin(tmp_path, expires)) as cluster:
        for _ in range(3):
            await cluster.identity()
        door.token = "issued-2"
        await cluster.identity()
    assert door.came == ["Bearer issued-1"] * 4 + ["Bearer issued-2"]


def _says(folder: Path, status: dict[str, object]) -> dict[str, object]:
    """A user whose program prints this."""
    version = "client.authentication.k8s.io/v1"
    printed = msgspec.json.encode({"apiVersion": version, "kind": "ExecCredential", "status": status})
    (folder / "issued").write_bytes(printed)
    return {"apiVersion": version, "command": "cat", "args": [str(folder / "issued")], "interactiveMode": "Never"}


async def test_what_a_plugin_does_not_give_may_be_null(tmp_path: Path) -> None:
    absent = dict.fromkeys(("clientCertificateData", "clientKeyData", "expirationTimestamp"))
    door = TokenCheckingApi()
    async with _entered(door, tmp_path, exec=_says(tmp_path, {"token": TOKEN, **absent})) as cluster:
        await cluster.identity()
    assert door.came == [f"Bearer {TOKEN}"]
    with pytest.raises(Unauthorized, match="neither a token nor a client certificate"):
        await connect("door", settings_for("http://127.0.0.1:1", tmp_path, exec=_says(tmp_path, {"token": None})))


async def test_the_end_of_a_plugins_token_needs_a_time_zone(tmp_path: Path) -> None:
    status: dict[str, object] = {"token": TOKEN, "expirationTimestamp": "2099-01-01T00:00:00"}
    with pytest.raises(Unauthorized, match="expirationTimestamp has no time zone: 2099-01-01T00:00:00"):
        await connect("door", settings_for("http://127.0.0.1:1", tmp_path, exec=_says(tmp_path, status)))


async def test_a_plugin_that_fails_is_unauthorized(tmp_path: Path) -> None:
    user = {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}
    with pytest.raises(Unauthorized, match="plugin"):
        await connect("door", settings_for("http://127.0.0.1:1", tmp_path, exec=user))


@pytest.mark.invariant(12)
async def test_nothing_that_a_failing_plugin_writes_is_repeated(tmp_path: Path) -> None:
    script = "echo no luck with hunter2 and $SECOND >&2; exit 3"
    user = {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
        "env": [{"name": "SECOND", "value": "hunter3"}],
    }  # fmt: skip
    with pytest.raises(Unauthorized, match=r"exec: process returned 3 \(run it by hand") as failed:
        await connect("door", settings_for("http://127.0.0.1:1", tmp_path, exec=user))
    assert "hunter" not in repr(failed.value)


async def test_a_cluster_described_in_a_secret_of_another_is_reached(
    api: TestApi, cluster: KubernetesClient, tmp_path: Path
) -> None:
    inside = api.namespace()
    door = TokenCheckingApi()
    async with scripted_api(door) as address:
        data = {"value": base64.b64encode(kubeconfig(address, token=TOKEN)).decode()}
        await cluster.create(SECRETS, inside, {"metadata": {"name": "member"}, "data": data})
        settings = ClusterSettings(secret=f"{inside}/member/value", via="test")
        async with await connect("member", settings, via=cluster) as member:
            assert await member.identity() == "uid-kube-system"
    assert door.came == [f"Bearer {TOKEN}"]
    with pytest.raises(Unavailable, match="no key"):
        await connect("member", ClusterSettings(secret=f"{inside}/member/other", via="test"), via=cluster)
    with pytest.raises(Unavailable, match="not there"):
        await connect("member", ClusterSettings(secret=f"{inside}/nobody/value", via="test"), via=cluster)


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"apiVersion": "v1", "command": "true"}},
        {"tokenFile": "/etc/hostname"},
        {"client-key": "/etc/hostname"},
    ],
)
async def test_a_kubeconfig_from_a_secret_runs_and_reads_nothing_here(
    api: TestApi, cluster: KubernetesClient, user: dict[str, object]
) -> None:
    inside = api.namespace()
    data = {"value": base64.b64encode(kubeconfig("http://127.0.0.1:1", **user)).decode()}
    await cluster.create(SECRETS, inside, {"metadata": {"name": "member"}, "data": data})
    with pytest.raises(Unavailable, match="command or a file"):
        await connect("member", ClusterSettings(secret=f"{inside}/member/value", via="test"), via=cluster)


async def test_outside_a_pod_in_cluster_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Unavailable, match="no pod"):
        await connect("inside", ClusterSettings(in_cluster=True))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "YAML"),
        ("contexts: 3", "not a kubeconfig"),
        ("{}", "no current context"),
        ("current-context: a", "no context 'a'"),
        ("current-context: a\ncontexts: [{name: a, context: {cluster: c}}]", "no server"),
    ],
)
async def test_a_broken_kubeconfig_is_described(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(Unavailable, match=says):
        await connect("x", ClusterSettings(kubeconfig=path))


async def test_several_files_are_merged_as_kubectl_merges_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    door = TokenCheckingApi()
    async with scripted_api(door) as address:
        whole = msgspec.yaml.decode(kubeconfig(address, tokenFile="token"))
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "token").write_text(TOKEN)
        (tmp_path / "one").write_bytes(msgspec.yaml.encode({"current-context": "there", "contexts": whole["contexts"]}))
        rest = {key: whole[key] for key in ("clusters", "users")} | {"current-context": "elsewhere"}
        (tmp_path / "sub" / "two").write_bytes(msgspec.yaml.encode(rest))
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'one'}:{tmp_path / 'missing'}:{tmp_path / 'sub' / 'two'}")
        async with await connect("x", ClusterSettings()) as cluster:
            assert await cluster.identity() == "uid-kube-system"


async def test_a_proxy_of_the_kubeconfig_is_used(tmp_path: Path) -> None:
    seen: list[str] = []

    async def proxy(request: web.Request) -> web.StreamResponse:
        seen.append(str(request.url))
        return namespace("kube-system")

    async with scripted_api(proxy) as address:
        path = tmp_path / "config"
        path.write_bytes(kubeconfig("http://kubernetes.test:8080", {"proxy-url": address}, token=TOKEN))
        async with await connect("x", ClusterSettings(kubeconfig=path)) as cluster:
            assert await cluster.identity() == "uid-kube-system"
    assert seen == ["http://kubernetes.test:8080/api/v1/namespaces/kube-system"]


async def test_the_password_of_a_proxy_shows_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "config"
    proxy = {"proxy-url": f"http://me:{TOKEN}@127.0.0.1:1"}
    path.write_bytes(kubeconfig("http://kubernetes.test:8080", proxy, token=TOKEN))
    async with await connect("x", ClusterSettings(kubeconfig=path)) as cluster:
        with pytest.raises(Unavailable) as caught:
            await cluster.identity()
        assert TOKEN not in _everything(caught.value)
        assert TOKEN not in repr(await cluster._calls._endpoints.current())


@pytest.mark.invariant(12)
async def test_no_token_shows_in_any_error_or_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong: by text, by repr, along the chain of causes, with the tracebacks, in the logs."""
    modes = ["refuse", "forbid", "echo", "echo-bare", "break", "garbage", "hang"]

    async def handler(request: web.Request) -> web.StreamResponse:
        match request.path.rpartition("/")[2]:
            case "refuse":
                return status(401, "Unauthorized")
            case "forbid":
                return status(403, "Forbidden")
            case "echo":
                return web.Response(status=500, text=f"bad request: Authorization: {request.headers['Authorization']}")
            case "echo-bare":
                return status(422, "Invalid", f"what is {request.headers['Authorization'].removeprefix('Bearer ')}?")
            case "break":
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            case "hang":
                await asyncio.sleep(1)
                return web.Response()
            case _:
                return web.Response(body=b"\x00{nonsense")

    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    with capture_logs() as logs:
        async with scripted_api(handler) as address:
            settings = settings_for(address, tmp_path, token=TOKEN)
            async with await connect("x", settings) as cluster:
                shown.append(repr(vars(cluster)) + repr(vars(cluster._calls)))
                for mode in modes:
                    with pytest.raises(ClusterError) as caught:
                        await _fail(cluster, mode)
                    shown.append(_everything(caught.value))
        async with await connect("x", settings) as nobody_there:
            with pytest.raises(Unavailable) as caught_last:
                await nobody_there.identity()
            shown.append(_everything(caught_last.value))
        (tmp_path / "broken").write_text(f"users: [{{name: me, user: {{token: {TOKEN}}}")
        with pytest.raises(Unavailable) as unparsed:
            await connect("x", ClusterSettings(kubeconfig=tmp_path / "broken"))
        shown.append(_everything(unparsed.value))
    shown += [repr(logs), caplog.text, repr([record.__dict__ for record in caplog.records])]
    assert len(shown) == len(modes) + 6
    assert not [text for text in shown if TOKEN in text]


async def _fail(cluster: KubernetesClient, mode: str) -> None:
    await cluster.request("GET", f"/x/{mode}", timeout=timedelta(seconds=0.3))
    await cluster.get(SECRETS, "ns", mode)


def _everything(error: BaseException) -> str:
    told = "".join(traceback.format_exception(error))
    at: BaseException | None = error
    while at is not None:
        told += f"{at!r} {at} {vars(at)!r}"
        at = at.__cause__ or at.__context__
    return told
