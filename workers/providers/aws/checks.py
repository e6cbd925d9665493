"""Checks of AWS for `knell doctor`: the account of an identity, and which reads it may make. The reads draw on no
budget and change nothing."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from service.contract.checks import CheckResult, CheckState
from service.sources.aws import partition_of
from workers.providers.aws.client.clients import CallerIdentity, SdkClients
from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.errors import AwsError, NoAccess
from workers.providers.aws.model import AwsClient, CallScope
from workers.providers.aws.services import SERVICES, service_named

TIMEOUT: Final = timedelta(seconds=20)
"""For all reads as one identity in one region."""

_TO_MEND_OWN: Final = (
    "give the process credentials: a role for its service account (IRSA or Pod Identity), or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)


class ReadCall(NamedTuple):
    """A read-only call of the SDK."""

    service: str
    operation: str
    arguments: Mapping[str, Any]

    @property
    def action(self) -> str:
        """The IAM action."""
        return operation_names(self.service, self.operation).action

    def arguments_for(self, client: AwsClient) -> dict[str, Any]:
        """With the account and region of the client in place of {account}, {region} and {partition}."""
        region, account = client.scope.region, client.account
        place = {"account": account, "region": region, "partition": partition_of(region)}
        return {
            name: value.format(**place) if isinstance(value, str) else value for name, value in self.arguments.items()
        }


class IdentityCheck(NamedTuple):
    """An identity in a region, and what to check of it. With `own` it stands for the process's own credentials, which
    must be of `account` if that is not empty. `optional` are services without which something else is used, and the
    words about that."""

    scope: CallScope
    own: bool
    account: str
    reads: Sequence[ReadCall]
    optional: Mapping[str, tuple[str, str]] = {}

    @property
    def node(self) -> str:
        return f"{self.scope.region} as {self.scope.identity or 'this process'}"


def probes_for(actions: Collection[str], without: Collection[str] = ()) -> Iterator[ReadCall]:
    """The probes of all services that need one of these actions, except those of some services."""
    for service in SERVICES:
        for operation, arguments in service.probes.items():
            read = ReadCall(service.name, operation, arguments)
            if read.action in actions and service.name not in without:
                yield read


async def check_identity(clients: SdkClients, check: IdentityCheck) -> list[CheckResult]:
    node, scope = check.node, check.scope
    found: list[CheckResult] = []
    try:
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            caller = await clients.caller_identity(scope)
            found.append(check_account(caller, check))
            if found[-1].state != "wrong":
                found += await _check_services(await clients.client(scope), check, caller)
    except NoAccess as error:
        mend = _TO_MEND_OWN if check.own else "correct the identity that the objects name, or their reference to it"
        found.append(CheckResult(check="AWS identity", state="wrong", what=str(error), mend=mend, node=node))
    except TimeoutError:
        found.append(CheckResult(check="AWS", state="unknown", what="it did not answer in time", node=node))
    except OSError as error:
        what = f"whether the cluster of this identity is the right one can't be asked: {error}"
        mend = "mend what is said of Redis, then look again"
        found.append(CheckResult(check="AWS identity", state="unknown", what=what, mend=mend, node=node))
    return found


def check_account(caller: CallerIdentity, check: IdentityCheck) -> CheckResult:
    """The expected account applies to the process's own credentials only."""
    said, node, account = f"STS says account {caller.account} ({caller.arn})", check.node, check.account
    if not check.own:
        return CheckResult(check="AWS identity", state="fine", what=said, node=node)
    if account and account != caller.account:
        return CheckResult(
            check="AWS identity",
            state="wrong",
            what=f"{said}, but aws.account is {account}: everything of the process's own credentials is held",
            mend=f"run with credentials of account {account}, or set aws.account (KNELL_AWS_ACCOUNT) to "
            f"{caller.account} if that is meant",
            node=node,
        )
    same = "as aws.account says" if account else "aws.account is not set"
    return CheckResult(check="AWS identity", state="fine", what=f"{said}, {same}", node=node)


async def _check_services(client: AwsClient, check: IdentityCheck, caller: CallerIdentity) -> list[CheckResult]:
    """One result for each service."""
    answers = await asyncio.gather(*(_try_read(client, read) for read in check.reads))
    outcomes = list(zip(check.reads, answers, strict=True))
    services = dict.fromkeys(read.service for read in check.reads)
    return [
        judge_service(service, [(read, error) for read, error in outcomes if read.service == service], check, caller)
        for service in services
    ]


async def _try_read(client: AwsClient, read: ReadCall) -> AwsError | NoAccess | None:
    """The error, or None."""
    try:
        await client.call(read.service, read.operation, **read.arguments_for(client))
    except AwsError as error:
        # A probe may name a type that does not exist.
        return None if error.what in ("gone", "unsupported") else error
    except NoAccess as error:
        return error
    return None


def judge_service(
    service: str,
    outcomes: Sequence[tuple[ReadCall, AwsError | NoAccess | None]],
    checked: IdentityCheck,
    caller: CallerIdentity,
) -> CheckResult:
    check, node = f"AWS {service_named(service).title}", checked.node
    denied = {read.action: error for read, error in outcomes if isinstance(error, AwsError) and error.what == "denied"}
    if denied:
        code = next(iter(denied.values())).code
        what = f"{caller.arn} may not {', '.join(denied)} ({code})"
        mend = "allow what `knell role --aws-policy` prints"
        state: CheckState = "wrong"
        if (instead := checked.optional.get(service)) is not None:
            state, what, mend = "warning", f"{what}: {instead[0]}", f"{mend}, or {instead[1]}"
        return CheckResult(check=check, state=state, what=what, mend=mend, node=node)
    failed = next((error for _, error in outcomes if error is not None), None)
    if failed is None:
        what = f"it answers {', '.join(read.action for read, _ in outcomes)}"
        return CheckResult(check=check, state="fine", what=what, node=node)
    passing = isinstance(failed, AwsError) and failed.what in ("throttled", "unreachable")
    mend = "see whether aws.endpoint is right and the service may be reached from here, also through proxies"
    return CheckResult(check=check, state="unknown" if passing else "wrong", what=str(failed), mend=mend, node=node)
