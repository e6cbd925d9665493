"""Objects that a scenario creates in the cluster, and their resources at the provider, as the admin sees them.
Each is identified by its uid: a later object of the same name is another one."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from service.contract.names import FINALIZER
from tests.api_servers import ApiServer
from tests.engine.waiting import until
from tests.kube import Crd
from tests.scenarios.watch.admin import Admin, each
from tests.simulated import JournalLine, Seed, SeededResource, SimulatedProvider, read_log

VMS: Final = "vms"
DISKS: Final = "disks"
ACCOUNT: Final = "acct"
BYSTANDER: Final = "bystander"
"""A resource that no object owns: it must be there after every story."""
PATIENCE: Final = timedelta(seconds=100)


@dataclass(frozen=True, slots=True)
class CreatedObject:
    """An object as the admin made it, and the ids of what it owns at the provider."""

    source: str
    crd: Crd
    namespace: str
    name: str
    uid: str
    targets: tuple[str, ...]

    @property
    def path(self) -> str:
        return self.crd.path(self.namespace, self.name)


class ScenarioObjects:
    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.admin = Admin(server)
        self.provider = SimulatedProvider(log=folder / "provider.jsonl")
        self.provider.state.add(Seed(resources=(SeededResource(account=ACCOUNT, id=BYSTANDER, owner="nobody"),)))
        self.crds: dict[str, Crd] = {}
        self.namespace = ""
        self.made: dict[str, CreatedObject] = {}
        self._namespaces: list[str] = []

    async def clear(self) -> None:
        """What a test leaves held back would keep its namespaces for ever."""
        for crd in {made.crd for made in self.made.values()}:
            for namespace in self._namespaces:
                items = await self.admin.items(crd.path(namespace))
                await each(self._free, [crd.path(namespace, item["metadata"]["name"]) for item in items])
        for namespace in self._namespaces:
            await self.admin.request("DELETE", f"/api/v1/namespaces/{namespace}")

    async def _free(self, path: str) -> None:
        await self.admin.request("PATCH", path, {"metadata": {"finalizers": None}}, patch="merge")

    # ---- making and deleting

    async def new_namespace(self) -> str:
        name = f"t{uuid.uuid4().hex[:10]}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.admin.create("/api/v1/namespaces", body)
        self._namespaces.append(name)
        return name

    async def make(
        self,
        *names: str,
        source: str = VMS,
        crd: Crd | None = None,
        namespace: str = "",
        targets: int = 1,
        resources: Iterable[SeededResource] = (),
        stages: bool = False,
        **metadata: Any,
    ) -> list[str]:
        """Objects that own so many resources each: NAME-0, NAME-1..., one stage for each of them or one for all.
        `resources` replaces what they are like at the provider."""
        kind, place = crd or self.crds[source], namespace or self.namespace
        special = {one.id: one for one in resources}

        async def one(name: str) -> None:
            ids = tuple(f"{name}-{number}" for number in range(targets))
            plain = (SeededResource(account=ACCOUNT, id=id_, owner=f"tag-{name}") for id_ in ids)
            self.provider.state.add(Seed(resources=tuple(special.get(like.id, like) for like in plain)))
            body = kind.body(name, **metadata)
            named = [
                {"account": ACCOUNT, "id": id_, "stage": number if stages else 0} for number, id_ in enumerate(ids)
            ]
            body["spec"] = {"owner": f"tag-{name}", "targets": named}
            found = await self.admin.create(kind.path(place), body)
            self.made[name] = CreatedObject(source, kind, place, name, found["metadata"]["uid"], ids)

        await each(one, names)
        return list(names)

    async def many(self, prefix: str, count: int, **how: Any) -> list[str]:
        return await self.make(*(f"{prefix}{number}" for number in range(count)), **how)

    async def read(self, name: str) -> Any | None:
        """The object of that name and uid; one of another uid is another object."""
        found = await self.admin.get(self.made[name].path)
        return found if found is not None and found["metadata"]["uid"] == self.made[name].uid else None

    async def delete(self, *names: str) -> None:
        await each(lambda name: self.admin.delete(self.made[name].path), names)

    async def delete_all(self, source: str = VMS) -> None:
        """In one call, a deletecollection; a server that does not come to its end within a minute is asked again."""
        while True:
            with contextlib.suppress(TimeoutError):
                answer = await self.admin.request("DELETE", self.crds[source].path(self.namespace))
                if answer.status == 200:
                    return

    async def live(self, crds: Collection[Crd] = ()) -> dict[str, Any]:
        """What is there of the objects that were made, by name."""
        found: dict[str, Any] = {}
        places = {(made.crd, made.namespace) for made in self.made.values() if not crds or made.crd in crds}
        for crd, namespace in places:
            for item in await self.admin.items(crd.path(namespace)):
                name = item["metadata"]["name"]
                if name in self.made and self.made[name].uid == item["metadata"]["uid"]:
                    found[name] = item
        return found

    async def until_marked(self, *names: str) -> None:
        wanted = set(names)

        async def marked() -> bool:
            found = {name for name, item in (await self.live()).items() if FINALIZER in finalizers(item)}
            return wanted <= found

        await self.until(f"{len(wanted)} objects are marked", marked)

    # ---- the provider

    def calls(self) -> list[JournalLine]:
        """Destructive calls as the provider wrote them down."""
        lines = read_log(self.folder / "provider.jsonl")
        return [line for line in lines if line.what == "request" and line.method == "DELETE"]

    def there(self, id_: str) -> bool:
        return self.provider.state.find(ACCOUNT, id_) is not None

    # ---- waiting

    def look_after(self) -> None:
        """Raises the error of a task that should still run."""

    async def until(self, what: str, look: Callable[[], Any], within: timedelta = PATIENCE) -> Any:
        """Tells at once if the service ended meanwhile."""

        async def looked() -> Any:
            self.look_after()
            began = time.monotonic()
            seen = await look()
            if not seen:
                # Whoever looks at thousands must not take the time that the service needs for them.
                await asyncio.sleep(3 * (time.monotonic() - began))
            return seen

        return await until(what, looked, within)


def finalizers(item: Any) -> list[str]:
    return list(item["metadata"].get("finalizers", []))


def is_going(item: Any) -> bool:
    return "deletionTimestamp" in item["metadata"]


_KINDS: dict[str, dict[str, Crd]] = {}


async def kinds_of(admin: Admin, server: ApiServer) -> dict[str, Crd]:
    """Made once for all tests of a server: it takes a real one a second to serve a new kind."""
    if server.url not in _KINDS:
        own = uuid.uuid4().hex[:8]
        kinds = {name: Crd(group="knell.test", plural=f"{name}{own}s") for name in (VMS, DISKS)}
        await each(admin.install, kinds.values())
        _KINDS[server.url] = kinds
    return dict(_KINDS[server.url])
