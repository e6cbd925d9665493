"""Check that the AWS account of every cluster is known without its VPC: from settings, annotation or identity.
CAPA may delete the VPC first; then a deletion is held unless something else names the account."""

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from service.contract.checks import CheckResult, CheckState
from service.kubernetes import ClusterError, KubeObject, KubernetesClient, NotServed
from service.policy.annotations import AnnotationValue
from service.policy.scope import gc_switch
from service.policy.selectors import parse_selector
from service.settings import Settings, SourceSettings
from service.sources.capa import AWS_ACCOUNT, AwsSettings
from workers.collectors.capa.account_records import identity_without_account, is_own

MAX_NAMED: Final = 3
_THEN: Final = (
    "once CAPA has removed a VPC, it is unknown whether the account is the right one, and that deletion waits for "
    "a person"
)
_SET: Final = "set aws.account (KNELL_AWS_ACCOUNT) to the account that the service's own credentials lead to"
_RECORD: Final = f"`knell gc enable KIND/NAME --account ID` (annotation {AWS_ACCOUNT}) for those with static identities"


class UnknownAccount(NamedTuple):
    """A collected cluster whose account is not known, and the identity that it uses."""

    called: str
    identity: str


async def check_accounts(cluster: KubernetesClient, settings: Settings, name: str, ours: Sequence[str]) -> CheckResult:
    count, silent = 0, list[UnknownAccount]()
    try:
        for source in ours:
            async for found in _collected_clusters(cluster, settings, source):
                count += 1
                if found is not None:
                    silent.append(found)
    except ClusterError as error:
        mend = f"knell role --cluster {name} | kubectl apply -f -, and run as that service account"
        what = f"whether clusters tell which account they are in is not known: {error}"
        return _result(name, "unknown", what, mend)
    return judge_accounts(name, count, silent, settings.section(AwsSettings).account or "")


async def _collected_clusters(
    cluster: KubernetesClient, settings: Settings, source: str
) -> AsyncIterator[UnknownAccount | None]:
    """One item for each cluster that is collected; None if its account is known."""
    declared = settings.sources[source]
    async for item in list_source_objects(cluster, declared):
        said = gc_switch(item.annotations, declared)
        if isinstance(said, AnnotationValue) and said.word == "disabled":
            continue
        if said is None and not parse_selector(declared.selector).matches(item.labels):
            continue
        identity = identity_without_account(item.raw, settings.section(AwsSettings).account or "")
        yield None if identity is None else UnknownAccount(f"{item.namespace}/{item.name}", identity)


async def list_source_objects(cluster: KubernetesClient, declared: SourceSettings) -> AsyncIterator[KubeObject]:
    """Every object of a source; none if its resource is not served, which another check reports."""
    try:
        served = await cluster.discover(declared.resource)
    except NotServed:
        return
    for namespace in declared.namespaces or (None,):
        async for page in cluster.pages(served, namespace):
            for item in page.items:
                yield item


def judge_accounts(cluster: str, count: int, silent: Sequence[UnknownAccount], account: str) -> CheckResult:
    """`count` is the number of all clusters, `account` is aws.account."""
    if not count and not account:
        what = f"aws.account is not set: of clusters that use the service's own credentials, {_THEN}"
        return _result(cluster, "warning", what, _SET)
    if not silent:
        what = f"the account of each of {count} clusters is known" if count else f"aws.account is {account}"
        return _result(cluster, "fine", what)
    own = [one for one in silent if is_own(one.identity)]
    more = f" and {len(silent) - MAX_NAMED} more" if len(silent) > MAX_NAMED else ""
    named = f"{', '.join(one.called for one in silent[:MAX_NAMED])}{more}"
    what = f"nothing but their VPCs tells the account of {len(silent)} of {count} clusters ({named}): {_THEN}"
    mend = "; ".join([*([_SET] if own else []), *([_RECORD] if len(own) < len(silent) else [])])
    return _result(cluster, "warning", what, mend)


def _result(cluster: str, state: CheckState, what: str, mend: str = "") -> CheckResult:
    return CheckResult(check="accounts", state=state, what=what, mend=mend, node=f"cluster {cluster}")
