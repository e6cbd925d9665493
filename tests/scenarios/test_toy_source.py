"""Source and kind of resource that were added outside the product, in the three files of `tests/toy`: they go through
the whole system, and are watched, planned, removed, swept, shown and checked."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from service.engine.kept_store import KeptStore
from service.settings import SettingsError, load
from service.sources.registry import register
from standins.aws import LocalAws
from standins.aws.behaviour import AwsFault
from standins.aws.builder import REGION, AwsBuilder
from tests.api_servers import TestApi
from tests.aws import described
from tests.kube import Crd
from tests.redis_servers import TestServer
from tests.scenarios.cloud_scenario import QUICK, CloudScenario
from tests.scenarios.own_account import own_account
from tests.toy import collector
from tests.toy.declaration import FREEZE, OWNER_TAG, SOURCE, TOYBOX, TOYBOXES, ToyBoxSettings
from tests.toy.kind import DHCP_OPTIONS, NAME
from workers.app import open_app
from workers.providers.aws.services import FILE, Undeclared

__all__ = ["own_account"]

BOXES: Final = "boxes"
"""Name of the source in the settings."""

CRD: Final = Crd("knell.test", "toyboxes", "Cluster", ("v1",), "ToyBox")


class ToyScenario(CloudScenario):
    """ToyBoxes of a cluster, an account with DHCP options, and the service between them. Names are the test's own."""

    def __init__(self, api: TestApi, server: TestServer, aws: LocalAws, builder: AwsBuilder, folder: Path) -> None:
        super().__init__(api, server.settings(), folder, QUICK)
        self.kube, self.aws, self.builder = api.kube, aws, builder
        self._prefix = f"b{uuid.uuid4().hex[:6]}"
        self.document["aws"] |= {"endpoint": aws.address, "account": builder.account}
        self.document[TOYBOX] = {"namespace": self.home, "sweep": False, "every": "300ms", "age": "300ms"}
        self.document["sources"] = {
            BOXES: {"resource": TOYBOXES, "collector": TOYBOX, "mode": "observe", "guard": {"enabled": False}}
        }

    # ---- the world

    def name(self, suffix: str) -> str:
        return f"{self._prefix}-{suffix}"

    async def box(self, suffix: str, **metadata: Any) -> str:
        """Creates a ToyBox; returns its uid."""
        made = await asyncio.to_thread(self.kube.create, CRD.path(), CRD.body(self.name(suffix), **metadata))
        return str(made["metadata"]["uid"])

    async def delete_box(self, suffix: str) -> None:
        await asyncio.to_thread(self.kube.delete, CRD.path("", self.name(suffix)))

    async def options(self, suffix: str = "") -> str:
        """Creates DHCP options of a ToyBox, which need not exist, or of nobody; returns their id."""
        made = await self.builder.ec2.create_dhcp_options(
            DhcpConfigurations=[{"Key": "domain-name", "Values": ["example.com"]}]
        )
        found = str(made["DhcpOptions"]["DhcpOptionsId"])
        tags = [{"Key": OWNER_TAG, "Value": self.name(suffix)}] if suffix else [{"Key": "other", "Value": "x"}]
        await self.builder.ec2.create_tags(Resources=[found], Tags=tags)
        return found

    async def freeze(self) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": FREEZE}}
        await asyncio.to_thread(self.kube.create, f"/api/v1/namespaces/{self.home}/configmaps", body)

    async def unfreeze(self) -> None:
        await asyncio.to_thread(self.kube.delete, f"/api/v1/namespaces/{self.home}/configmaps/{FREEZE}")

    async def there(self) -> set[str]:
        """Ids of all DHCP options of the account."""
        return {
            one["DhcpOptionsId"] for one in await described(self.builder.ec2, "describe_dhcp_options", "DhcpOptions")
        }

    # ---- waiting

    async def watched_box(self, suffix: str, **metadata: Any) -> None:
        """Creates a ToyBox that the service then has in its inventory."""
        uid = await self.box(suffix, **metadata)

        async def look() -> bool:
            key = self.installation.keys.of(0, f"inventory:{BOXES}")
            return bool(await self.installation.caller.command("HEXISTS", key, uid))

        await self.until(f"{uid} is in the inventory", look)

    async def until_gone(self, *ids: str) -> None:
        async def look() -> bool:
            return not set(ids) & await self.there()

        await self.until(f"{ids} are gone", look)

    async def until_done(self, number: int = 1) -> None:
        async def look() -> bool:
            return [view.state for view in await self.deletions()] == ["done"] * number

        await self.until(f"{number} deletions are done", look)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with register(SOURCE):
        yield


@pytest.fixture
async def toys(
    api: TestApi, embedded_server: TestServer, local_aws: LocalAws, own_account: AwsBuilder, tmp_path: Path
) -> AsyncIterator[ToyScenario]:
    if api.kube.get(CRD.own_path) is None:
        api.kube.install(CRD)
    made = ToyScenario(api, embedded_server, local_aws, own_account, tmp_path)
    try:
        yield made
    finally:
        await made.aclose()


@pytest.mark.long
async def test_what_a_deleted_object_owned_goes_and_nothing_else(toys: ToyScenario) -> None:
    await toys.start()
    await toys.watched_box("mine")
    await toys.watched_box("other")
    mine, twin = await toys.options("mine"), await toys.options("mine")
    others, foreign = await toys.options("other"), await toys.options()
    await toys.delete_box("mine")
    await toys.until_gone(mine, twin)
    await toys.until_done()
    assert {others, foreign} <= await toys.there()


@pytest.mark.long
async def test_what_its_collector_objects_to_waits(toys: ToyScenario) -> None:
    await toys.start()
    await toys.watched_box("mine")
    mine = await toys.options("mine")
    await toys.freeze()
    await toys.delete_box("mine")
    await toys.until_job("while there is a ConfigMap", FREEZE)
    assert mine in await toys.there()
    await toys.unfreeze()
    await toys.until_gone(mine)
    await toys.until_done()


@pytest.mark.long
async def test_a_resource_that_got_another_owner_since_the_plan_is_refused(toys: ToyScenario) -> None:
    await toys.start()
    await toys.watched_box("mine")
    mine = await toys.options("mine")
    await toys.freeze()
    await toys.delete_box("mine")
    await toys.until_job(FREEZE)
    await toys.builder.ec2.create_tags(Resources=[mine], Tags=[{"Key": OWNER_TAG, "Value": toys.name("other")}])
    await toys.unfreeze()
    await toys.until_job(f"{mine} belongs to ToyBox {toys.name('other')}, not to {toys.name('mine')}")
    assert mine in await toys.there()


@pytest.mark.long
async def test_an_orphan_is_swept_and_what_has_a_living_owner_stays(toys: ToyScenario) -> None:
    toys.document[TOYBOX]["sweep"] = True
    await toys.box("living")
    living, foreign = await toys.options("living"), await toys.options()
    orphan, twin = await toys.options("orphan"), await toys.options("orphan")
    await toys.start()
    await toys.until_gone(orphan, twin)
    await toys.until_done()
    assert {living, foreign} <= await toys.there()


@pytest.mark.long
@pytest.mark.invariant(10)
async def test_what_a_retained_object_left_is_no_orphan(toys: ToyScenario) -> None:
    toys.document[TOYBOX]["sweep"] = True
    await toys.start()
    await toys.watched_box("kept", annotations={"knell.dev/deletion-policy": "retain"})
    kept = await toys.options("kept")
    await toys.delete_box("kept")
    await toys.until_done()
    orphan = await toys.options("orphan")
    await toys.until_gone(orphan)
    assert kept in await toys.there()


@pytest.mark.long
@pytest.mark.invariant(9)
@pytest.mark.parametrize("named", [True, False], ids=["account in the settings", "account of the credentials"])
async def test_what_a_retained_object_left_does_not_go_with_a_later_one_of_its_name(
    toys: ToyScenario, named: bool
) -> None:
    if not named:
        del toys.document["aws"]["account"]
    await toys.start()
    await toys.watched_box("reused", annotations={"knell.dev/deletion-policy": "retain"})
    kept = await toys.options("reused")
    await toys.delete_box("reused")
    await toys.until_done()
    await toys.watched_box("reused")
    await toys.delete_box("reused")

    place = f"aws/{toys.builder.account}/{REGION}"

    async def look() -> bool:
        wanted = f"knell kept forget {place}/{toys.name('reused')}"
        return any(wanted in view.held_why for view in await toys.deletions())

    await toys.until("the later one is held", look)
    assert kept in await toys.there()


@pytest.mark.long
async def test_a_sweep_forgets_what_was_kept_once_it_is_gone(toys: ToyScenario) -> None:
    del toys.document["aws"]["account"]
    toys.document[TOYBOX]["sweep"] = True
    await toys.start()
    await toys.watched_box("kept", annotations={"knell.dev/deletion-policy": "retain"})
    kept = await toys.options("kept")
    await toys.delete_box("kept")
    await toys.until_done()

    async def remembered() -> list[str]:
        # Not by a command: the service, which runs in this process, logs to the same output.
        return [key async for key, _ in KeptStore(toys.installation).all_decisions()]

    assert await remembered() == [f"aws/{toys.builder.account}/{REGION}/{toys.name('kept')}"]
    await toys.builder.ec2.delete_dhcp_options(DhcpOptionsId=kept)

    async def look() -> bool:
        return not await remembered()

    await toys.until("nothing is remembered", look)


@pytest.mark.long
async def test_a_rehearsed_sweep_lists_the_orphan_and_a_real_one_publishes_it(toys: ToyScenario) -> None:
    toys.document[TOYBOX]["age"] = "0s"
    await toys.box("living")
    await toys.options("living")
    orphan = await toys.options("orphan")
    becomes = []
    for words in (["--dry-run"], [], ["--dry-run"], []):
        (found,) = (await toys.command("sweep", *words))["sweeps"]
        (one,) = found["orphans"]
        assert (one["box"], one["what"], one["region"]) == (toys.name("orphan"), "DHCP options", REGION)
        assert (found["source"], found["listed"]) == (BOXES, 2)
        becomes.append(one["becomes"])
    assert becomes == ["waits", "waits", "would be told", "told"]
    await toys.start(watches=False)
    await toys.until_gone(orphan)


@pytest.mark.long
async def test_objects_with_namespaces_are_not_swept(toys: ToyScenario, api: TestApi) -> None:
    namespaced, orphan = api.crd(), await toys.options("orphan")
    toys.document["sources"][BOXES] |= {"resource": namespaced.resource, "collector": "spread"}
    with register(msgspec.structs.replace(SOURCE, name="spread", resources=(namespaced.resource,))):
        answer = await asyncio.to_thread(toys.knell, "sweep", "--dry-run")
    assert answer.code == 1
    assert f"{namespaced.resource} have namespaces" in answer.err
    assert orphan in await toys.there()


@pytest.mark.long
async def test_a_plan_shows_the_targets_and_their_lane(toys: ToyScenario) -> None:
    await toys.box("mine")
    mine = await toys.options("mine")
    await toys.options("other")
    planned = await toys.command("plan", f"toybox/{toys.name('mine')}")
    (target,) = planned["targets"]
    lane = f"aws/{toys.builder.account}/{REGION}/ec2.DeleteDhcpOptions"
    assert (target["kind"], target["id"], target["lane"]) == (NAME, mine, lane)
    assert (planned["collector"], planned["held"]) == (TOYBOX, "")
    limits = {need["limit"] for need in planned["estimate"]["limits"]}
    assert {f"{REGION}/ec2.DeleteDhcpOptions", f"{REGION}/ec2.DescribeDhcpOptions"} <= limits


@pytest.mark.long
async def test_the_doctor_runs_its_check_and_knows_its_permissions(toys: ToyScenario) -> None:
    await toys.options("mine")
    findings = {one["check"]: one for one in (await toys.command("doctor"))["findings"]}
    assert findings["ToyBoxes"]["state"] == "fine"
    assert f"account {toys.builder.account} has 1" in findings["ToyBoxes"]["what"]
    assert findings[f"source {BOXES}"]["state"] == "fine"
    assert findings["access"]["state"] in ("fine", "unknown")
    await toys.aws.set_faults(AwsFault(what="deny", action="ec2.DescribeDhcpOptions", account=toys.builder.account))
    answer = await asyncio.to_thread(toys.knell, "doctor", "--output", "json")
    (found,) = [one for one in answer.json["findings"] if one["check"] == "ToyBoxes"]
    assert (answer.code, found["state"]) == (1, "wrong")
    assert "ec2:DescribeDhcpOptions" in found["what"]
    assert "ec2.DeleteDhcpOptions" in found["mend"]


@pytest.mark.long
async def test_its_rules_and_its_leases_are_in_the_roles(toys: ToyScenario) -> None:
    made = (await toys.command("role"))["items"]
    rules = {(one["metadata"]["name"], rule["resources"][0]): rule for one in made for rule in one.get("rules", ())}
    assert rules["knell-toybox", "configmaps"]["resourceNames"] == [FREEZE]
    assert rules["knell", "toyboxes"]["verbs"] == ["get", "list", "watch"]
    assert f"knell-{BOXES}-sweep" in rules["knell", "leases"]["resourceNames"]


@pytest.mark.long
async def test_its_actions_are_in_the_iam_policy_beside_those_of_other_sources(toys: ToyScenario) -> None:
    async def printed() -> dict[str, list[str]]:
        answer = await asyncio.to_thread(toys.knell, "role", "--aws-policy")
        return {one["Sid"]: one["Action"] for one in answer.json["Statement"]}

    alone = await printed()
    assert {"ec2:DescribeDhcpOptions", "sts:GetCallerIdentity"} < set(alone["Reads"])
    # Its resources are tagged when they are kept, and `knell kept` looks for the tag among all kinds on AWS.
    assert "ec2:DescribeVolumes" in alone["Reads"]
    assert alone["Toybox"] == ["ec2:DeleteDhcpOptions"]
    assert alone.keys() == {"Reads", "Toybox", "SettingMarkRetained"}
    capa = {"resource": "awsclusters.infrastructure.cluster.x-k8s.io", "collector": "capa"}
    toys.document["sources"] |= {"clusters": capa}
    both = await printed()
    assert both["Toybox"] == alone["Toybox"]
    assert {"ec2:DescribeDhcpOptions", "ec2:DescribeSecurityGroups"} <= set(both["Reads"])
    assert "ec2:DeleteSecurityGroup" in both["TaskSecurityGroup"]


@pytest.mark.long
async def test_its_section_is_decoded_and_unknown_keys_are_refused(toys: ToyScenario) -> None:
    loaded = load(toys.config(), {"KNELL_TOYBOX_REGION": "us-east-1"}).section(ToyBoxSettings)
    assert (loaded.namespace, loaded.region, loaded.sweep) == (toys.home, "us-east-1", False)
    toys.document[TOYBOX] |= {"regoin": REGION, "namespace": ""}
    with pytest.raises(SettingsError) as refused:
        load(toys.config(), {})
    assert "did you mean region?" in str(refused.value)
    assert f"{TOYBOX}.namespace" in str(refused.value)


@pytest.mark.long
@pytest.mark.invariant(9)
async def test_a_second_source_whose_sweep_would_take_the_others_resources_for_orphans_is_refused(
    toys: ToyScenario,
) -> None:
    """Also in another cluster: the tag of a ToyBox's resources names none."""
    toys.document["clusters"] |= {"elsewhere": {}}
    toys.document["sources"]["more"] = {**toys.document["sources"][BOXES], "cluster": "elsewhere"}
    with pytest.raises(SettingsError, match=rf"sources\.more: is a second source with collector {TOYBOX}"):
        load(toys.config(), {})


@pytest.mark.invariant(7)
@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({"service": "sqs"}, "'sqs' has no row"),
        ({"delete_operation": "sqs.DeleteQueue"}, "is of no service"),
        ({"delete_operation": "eks.DeleteCluster"}, "has no limit"),
    ],
)
@pytest.mark.long
async def test_a_process_with_a_kind_without_limits_does_not_start(
    toys: ToyScenario, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], missing: str
) -> None:
    monkeypatch.setattr(collector, "DHCP_OPTIONS", msgspec.structs.replace(DHCP_OPTIONS, **changed))
    settings = load(toys.config(), {})
    with pytest.raises(Undeclared, match=f"{missing}.*{FILE}"):
        async with open_app(settings, {}, toys.installation):
            pass


def test_nothing_else_knows_it() -> None:
    root = Path(__file__).parents[2]
    modules = [path for folder in ("service", "workers", "standins", "tests") for path in (root / folder).rglob("*.py")]
    known = {path for path in modules if re.search("toybox|dhcp.?options", path.read_text(), re.IGNORECASE)}
    assert known == {Path(__file__), *(root / "tests" / "toy").glob("*.py")}
