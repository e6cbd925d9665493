"""What `knell doctor` says of the accounts of clusters on AWS: does anything tell them, once their VPCs are gone?
Each cluster is read as it is now; only names are kept, and of many only the first."""

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from service.cli.checks import Finding, State
from service.contract.aws import AWS_ACCOUNT
from service.kubernetes import Cluster, ClusterError, Live, NotServed
from service.policy.annotations import Said
from service.policy.aws_accounts import is_own, untold
from service.policy.scope import switched
from service.policy.selectors import parse
from service.settings import Settings, SourceSettings

NAMED: Final = 3
_THEN: Final = (
    "once CAPA has removed a VPC, nobody can tell whether the account is the right one, and that deletion waits for "
    "a person"
)
_SET: Final = "set aws.account (KNELL_AWS_ACCOUNT) to the account that the service's own credentials lead to"
_RECORD: Final = f"`knell gc enable KIND/NAME --account ID` (annotation {AWS_ACCOUNT}) for those with static identities"


class Silent(NamedTuple):
    """A cluster that is to be collected, and the identity by which it gets at an account that nothing tells."""

    called: str
    identity: str


async def examine_accounts(cluster: Cluster, settings: Settings, name: str, ours: Sequence[str]) -> Finding:
    count, silent = 0, list[Silent]()
    try:
        for source in ours:
            async for found in _clusters(cluster, settings, source):
                count += 1
                if found is not None:
                    silent.append(found)
    except ClusterError as error:
        mend = f"knell role --cluster {name} | kubectl apply -f -, and run as that service account"
        what = f"whether clusters tell which account they are in is not known: {error}"
        return _finding(name, "unknown", what, mend)
    return told(name, count, silent, settings.aws.account or "")


async def _clusters(cluster: Cluster, settings: Settings, source: str) -> AsyncIterator[Silent | None]:
    """Those that are collected; None for one whose account something tells."""
    declared = settings.sources[source]
    async for item in objects_of(cluster, declared):
        said = switched(item.annotations, declared)
        if isinstance(said, Said) and said.word == "disabled":
            continue
        if said is None and not parse(declared.selector).matches(item.labels):
            continue
        identity = untold(item.raw, settings.aws.account or "")
        yield None if identity is None else Silent(f"{item.namespace}/{item.name}", identity)


async def objects_of(cluster: Cluster, declared: SourceSettings) -> AsyncIterator[Live]:
    """Every object of a source; none where its kind is not served, which another check says."""
    try:
        served = await cluster.discover(declared.resource)
    except NotServed:
        return
    for namespace in declared.namespaces or (None,):
        async for page in cluster.pages(served, namespace):
            for item in page.items:
                yield item


def told(cluster: str, count: int, silent: Sequence[Silent], account: str) -> Finding:
    """`account` is that of the settings, `count` are all clusters."""
    if not count and not account:
        what = f"aws.account is not set: of clusters that use the service's own credentials, {_THEN}"
        return _finding(cluster, "warning", what, _SET)
    if not silent:
        what = f"the account of each of {count} clusters is told" if count else f"aws.account is {account}"
        return _finding(cluster, "fine", what)
    own = [one for one in silent if is_own(one.identity)]
    more = f" and {len(silent) - NAMED} more" if len(silent) > NAMED else ""
    named = f"{', '.join(one.called for one in silent[:NAMED])}{more}"
    what = f"nothing but their VPCs tells the account of {len(silent)} of {count} clusters ({named}): {_THEN}"
    mend = "; ".join([*([_SET] if own else []), *([_RECORD] if len(own) < len(silent) else [])])
    return _finding(cluster, "warning", what, mend)


def _finding(cluster: str, state: State, what: str, mend: str = "") -> Finding:
    return Finding(check="accounts", state=state, what=what, mend=mend, node=f"cluster {cluster}")
