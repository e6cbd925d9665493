"""Steps that measure deletions while admission is asked about each, and two contenders: no admission at all, which is
the limit, and Knell's admission policy. Knell itself takes part with its webhook.

None of the deleted objects is protected. One that is shows by server dry runs that the judgement is in force, and
afterwards that it no longer is."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from bench import objects
from bench.bench_server import BenchServer
from bench.contenders.program import Program, running
from bench.contenders.protocol import Admitted, ContenderFailedError, Kind, NotSupportedError, PacedDeletions
from bench.contenders.unsupported import UnsupportedContender
from bench.objects import GROUP, SMALL, THINGS, TookTooLongError
from service.admission.manifests import protection_manifests
from service.contract.names import PREFIX, PREVENT_DELETE
from service.settings import Settings, load
from standins.ports import free_ports

SOURCE: Final = "bench"
WEBHOOK: Final = (sys.executable, "-c", "from service.cli.main import main; main()", "webhook", "--config")
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_PLURALS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
_PROTECTED: Final = "protected"
_WARM: Final = 100
"""Deletions before those that count: they open the connections."""
_WITHIN: Final = 60.0


class NoAdmission(UnsupportedContender):
    name = "no-admission"
    kind: Kind = "limit"
    settings = "no admission policy and no webhook"
    no_jobs = no_objects = no_aws = no_azure = "only deletes objects"

    def version(self) -> str:
        return "nothing of ours"

    def admit(self, server: BenchServer, deletions: PacedDeletions) -> Admitted:
        namespace = server.cluster.namespace()
        return _measured(server, namespace, deletions, None, lambda: None)


class AdmissionPolicy(UnsupportedContender):
    name = "policy"
    kind: Kind = "admission"
    settings = "the policy of `knell protection manifests` and its binding; no process is asked"
    no_jobs = no_objects = no_aws = no_azure = "only judges deletions"

    def version(self) -> str:
        return "this clone"

    def admit(self, server: BenchServer, deletions: PacedDeletions) -> Admitted:
        if not server.cluster.is_real:
            raise NotSupportedError("the embedded API evaluates no admission policies")
        namespace = server.cluster.namespace()
        with _settings_file(_document(server, namespace, {})) as (_, settings), _applied(server, settings, "Policy"):
            return _measured(server, namespace, deletions, None, lambda: None)


def admit_by_webhook(server: BenchServer, deletions: PacedDeletions) -> Admitted:
    """`knell webhook` is asked about every object; no admission policy."""
    cluster = server.cluster
    own, namespace = cluster.namespace(), cluster.namespace()
    (port,) = free_ports(1)
    address = {"host": "127.0.0.1", "port": port, "url": f"https://127.0.0.1:{port}"}
    document = _document(server, own, {"enabled": True, "objects": True, **address})
    with (
        _settings_file(document) as (file, settings),
        _applied(server, settings, "WebhookConfiguration"),
        running("knell", [*WEBHOOK, str(file)], {}) as program,
    ):
        return _measured(server, namespace, deletions, program, program.check)


def _document(server: BenchServer, own: str, webhook: dict[str, Any]) -> dict[str, Any]:
    return {
        "surface": {"host": "127.0.0.1", "port": 0},
        "log": {"format": "json"},
        "clusters": {SOURCE: {"kubeconfig": str(server.cluster.kubeconfig)}},
        "watch": {"namespace": own},
        "protection": {"groups": [GROUP], "webhook": webhook},
    }


@contextmanager
def _settings_file(document: dict[str, Any]) -> Iterator[tuple[Path, Settings]]:
    with tempfile.TemporaryDirectory(prefix="knell-bench-") as folder:
        file = Path(folder) / "knell.yaml"
        file.write_bytes(msgspec.yaml.encode(document))
        yield file, load(file, {})


@contextmanager
def _applied(server: BenchServer, settings: Settings, part: str) -> Iterator[None]:
    """Of the manifests those whose kind has this word in it, until the end."""
    manifests = [one for one in protection_manifests(settings, SOURCE) if part in one["kind"]]
    places = [f"{_ADMISSION}/{_PLURALS[one['kind']]}" for one in manifests]

    async def apply(session: aiohttp.ClientSession) -> None:
        for place, manifest in zip(places, manifests, strict=True):
            await objects.answer(session, "POST", place, manifest)

    async def remove(session: aiohttp.ClientSession) -> None:
        for place, manifest in zip(places, manifests, strict=True):
            await objects.answer(session, "DELETE", f"{place}/{manifest['metadata']['name']}")

    try:
        server.cluster.run(apply)
        yield
    finally:
        server.cluster.run(remove)


def _measured(
    server: BenchServer,
    namespace: str,
    deletions: PacedDeletions,
    program: Program | None,
    check: Callable[[], None],
) -> Admitted:
    judged = program is not None or _has_policy(server)
    names = objects.names(deletions.count + _WARM)

    async def delete(session: aiohttp.ClientSession) -> Admitted:
        path = objects.path_of(THINGS, namespace)
        await _create(session, path, names)
        await objects.until(
            lambda: _denied(session, path, wanted=judged), _WITHIN, f"deletions are judged: {judged}", check
        )
        await objects.delete_paced(session, path, names[:_WARM], deletions.per_second)
        before = program.cpu_seconds if program is not None else None
        paced = await objects.delete_paced(session, path, names[_WARM:], deletions.per_second)
        after = program.cpu_seconds if program is not None else None
        return Admitted(
            latencies=paced.latencies,
            seconds=paced.seconds,
            cpu_seconds=None if before is None or after is None else after - before,
        )

    try:
        return server.cluster.run(delete)
    except TookTooLongError as failure:
        raise ContenderFailedError(str(failure)) from failure


def _has_policy(server: BenchServer) -> bool:
    async def listed(session: aiohttp.ClientSession) -> bool:
        found = await objects.answer(session, "GET", f"{_ADMISSION}/validatingadmissionpolicybindings")
        return bool(found["items"])

    return server.cluster.run(listed)


async def _create(session: aiohttp.ClientSession, path: str, names: Sequence[str]) -> None:
    bodies = [objects.object_of("Thing", name, objects.spec_of(number, SMALL)) for number, name in enumerate(names)]
    protected = objects.object_of("Thing", _PROTECTED, {})
    protected["metadata"]["annotations"] = {f"{PREFIX}/{PREVENT_DELETE}": "true"}
    await objects.create(session, ((path, body) for body in [*bodies, protected]))


async def _denied(session: aiohttp.ClientSession, path: str, *, wanted: bool) -> bool:
    """Whether the protected object is judged as it should be: by whoever is measured, and nobody of the turn before."""
    async with session.delete(f"{path}/{_PROTECTED}", params={"dryRun": "All"}) as response:
        await response.read()
        return response.status == (403 if wanted else 200)
