"""Denial of deletions in the demo: the admission policies and the webhook of the replicas, as `knell protection
manifests` prints them, are applied, asked about what is protected, and taken away again."""

import asyncio
import time
from typing import Any, Final

from service.admission.dry_run import dry_run_delete
from service.admission.installed_objects import ALL_INSTALLED
from service.admission.manifests import protection_manifests
from service.kubernetes import NAMESPACES, ClusterError, Forbidden, KubernetesClient, NotFound, ServedResource
from service.settings import Settings
from standins.demo.objects import NAMESPACE

_STEP: Final = 0.1
_WITHIN: Final = 60.0
_SERVED: Final = {served.kind: served for served, _ in ALL_INSTALLED}


class DenialFailed(Exception):
    """The API server does not do in time what the manifests say; the message says what."""


class DeletionDenial:
    def __init__(self, cluster: KubernetesClient, settings: Settings) -> None:
        self._cluster, self._settings = cluster, settings

    async def apply(self) -> None:
        for manifest in protection_manifests(self._settings, self._cluster.name):
            await self._cluster.create(_SERVED[manifest["kind"]], "", _body(manifest))

    async def remove(self) -> None:
        """What an administrator would do with `kubectl delete`, were Knell's webhook down."""
        for served, name in ALL_INSTALLED:
            try:
                await self._cluster.delete(served, "", name)
            except NotFound:
                # There are only the policies that the settings ask for.
                continue

    async def until(self, outcome: str, served: ServedResource, name: str) -> None:
        """Until a server dry run of the deletion ends so: the API server follows its configuration after a moment, and
        first needs the certificate of the webhook. Raises DenialFailed."""
        deadline = time.monotonic() + _WITHIN
        while True:
            live = await self._cluster.get(served, NAMESPACE if served.namespaced else "", name)
            if live is None:
                raise DenialFailed(f"there is no {served.kind.lower()}/{name}")
            answer = await dry_run_delete(self._cluster, served, live)
            if answer.outcome == outcome:
                return
            if time.monotonic() > deadline:
                which = f"{served.kind.lower()}/{name}"
                raise DenialFailed(f"the deletion of {which} is {answer.outcome}, not {outcome}: {answer.message}")
            await asyncio.sleep(_STEP)

    async def until_in_force(self, served: ServedResource, name: str) -> None:
        await self.until("denied", served, name)
        await self.until("denied", NAMESPACES, NAMESPACE)

    async def delete(self, served: ServedResource, name: str) -> str:
        """The answer to its DELETE as kubectl shows it; empty if it is deleted."""
        try:
            await self._cluster.delete(served, NAMESPACE if served.namespaced else "", name)
        except Forbidden as error:
            return f"Error from server (Forbidden): {error.answer}"
        except ClusterError as error:
            return f"Error from server: {error.answer or error}"
        return ""


def _body(manifest: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
