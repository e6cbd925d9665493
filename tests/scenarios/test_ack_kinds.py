"""ACK's objects of each kind that Knell removes in a way of its own, and of three that Cloud Control removes, through
the whole service: a leftover goes by its identifier, and what is retained or another's stays."""

import pytest
from botocore.exceptions import ClientError

from service.contract.kept import RETAINED_TAG
from service.engine.kept_store import KeptStore
from service.sources.ack import NAMESPACE_TAG
from standins.aws import AwsFault
from standins.aws.builder import REGION
from tests.scenarios.ack_kind_scenario import AckKindScenario, AckOf, ack_of
from tests.scenarios.ack_kinds import ACK_KINDS, AckKind
from tests.scenarios.own_account import own_account

__all__ = ["ack_of", "own_account"]

pytestmark = pytest.mark.long

POLICY = "services.k8s.aws/deletion-policy"


@pytest.fixture(params=ACK_KINDS)
def kind(request: pytest.FixtureRequest) -> AckKind:
    return ACK_KINDS[request.param]


@pytest.fixture
async def ack(kind: AckKind, ack_of: AckOf) -> AckKindScenario:
    return ack_of(kind)


@pytest.mark.invariant(2)
async def test_a_leftover_goes_and_what_another_namespace_is_tagged_with_stays(
    ack: AckKindScenario, kind: AckKind
) -> None:
    await ack.start()
    mine, theirs = await ack.made("mine"), await ack.made("theirs", "elsewhere")
    await ack.delete("theirs")
    await ack.until_job(f"is not tagged {NAMESPACE_TAG}={ack.namespace}")
    await ack.delete("mine")
    await ack.until_removed(mine)

    async def done() -> bool:
        return "done" in [view.state for view in await ack.deletions()]

    await ack.until("its deletion is done", done)
    assert await theirs.exists()


@pytest.mark.invariant(10)
async def test_what_is_retained_stays_marked_as_kept_and_the_audit_says_so(ack: AckKindScenario, kind: AckKind) -> None:
    await ack.start()
    kept = await ack.made("mine", annotations={POLICY: "retain"})
    uid = (await ack.read("mine"))["metadata"]["uid"]
    await ack.delete("mine")
    await ack.until_done()
    assert await kept.exists()
    assert f"retain: annotation {POLICY}" in await ack.audited()
    place = f"aws/{ack.builder.account}/{REGION}"
    (decision,) = await KeptStore(ack.installation).decisions(place, f"{kind.provider_kind}:{kind.target(kept.id)}")
    (resource,) = decision.resources
    assert (decision.uid, resource.id) == (uid, kind.target(kept.id))
    if kind.tags is None:
        assert resource.tag.startswith("not tagged: ")
    else:
        assert resource.tag == ""
        assert uid in (await kept.tags())[RETAINED_TAG]


@pytest.mark.invariant(1)
async def test_one_that_is_throttled_goes_once_it_is_answered_and_spends_no_attempt(
    ack: AckKindScenario, kind: AckKind
) -> None:
    await ack.aws.set_faults(AwsFault(what="throttle", action=kind.delete_operation, account=ack.builder.account))
    await ack.start()
    mine = await ack.made("mine")
    await ack.delete("mine")

    async def throttled() -> bool:
        return "throttled" in [job.verdict for job in await ack.every_job()]

    await ack.until("its deletion is throttled", throttled)
    assert await mine.exists()
    await ack.aws.set_faults()
    await ack.until_removed(mine)
    await ack.until_done()
    attempts = {job.target: job.attempts for job in await ack.every_job()}
    assert attempts[kind.target(mine.id)] == 0


# ---- databases


@pytest.mark.parametrize("kind", [ACK_KINDS["DBInstance"]], ids=["DBInstance"])
@pytest.mark.parametrize(("word", "snapshots"), [("snapshot", 1), ("delete", 0)])
async def test_a_database_goes_after_its_snapshot_if_its_policy_says_so(
    ack: AckKindScenario, kind: AckKind, word: str, snapshots: int
) -> None:
    await ack.start()
    mine = await ack.made("db", annotations={POLICY: word})
    await ack.delete("db")
    await ack.until_done()
    rds = await ack.builder.client("rds")
    with pytest.raises(ClientError):
        await rds.describe_db_instances(DBInstanceIdentifier=mine.id)
    assert len((await rds.describe_db_snapshots())["DBSnapshots"]) == snapshots
