"""HTTP server in place of an API server whose responses come from a function of the test.
It does what no real server can be made to do in a test: refusals, silence, broken lines, tokens that expire."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer

from service.settings import ClusterSettings

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def scripted_api(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Gives its address."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", answer)
    server = TestServer(app, scheme="http" if tls is None else "https", skip_url_asserts=True)
    await server.start_server(shutdown_timeout=0.1, ssl=tls)
    try:
        yield f"{server.scheme}://{server.host}:{server.port}"
    finally:
        await server.close()


def settings_for(address: str, folder: Path, **user: object) -> ClusterSettings:
    """A kubeconfig for that address, with a user as given."""
    path = folder / "wayward.kubeconfig"
    path.write_bytes(kubeconfig(address, **user))
    return ClusterSettings(kubeconfig=path)


def kubeconfig(address: str, cluster: Mapping[str, object] | None = None, /, **user: object) -> bytes:
    return msgspec.yaml.encode(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "there",
            "contexts": [{"name": "there", "context": {"cluster": "there", "user": "me"}}],
            "clusters": [{"name": "there", "cluster": {"server": address, **(cluster or {})}}],
            "users": [{"name": "me", "user": user}],
        }
    )


def status(code: int, reason: str, message: str = "", **details: object) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message or reason, "details": details}
    return web.json_response(body, status=code)


def thing(name: str, uid: str = "", **metadata: object) -> dict[str, object]:
    return {
        "apiVersion": "knell.test/v1",
        "kind": "Thing",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid-{name}",
            "resourceVersion": "7",
            **metadata,
        },
    }


def namespace(name: str) -> web.Response:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"}
    return web.json_response({"kind": "Namespace", "metadata": metadata})


def line(kind: str, body: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body}) + b"\n"
