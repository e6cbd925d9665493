"""Option `--deletion-policy` of the long-running commands: overrides the settings in general, or for one service.
An unknown policy or service is an error before the command starts."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
import msgspec

from service.cli.printable import clean
from service.cli.session import InvalidUsage
from service.policy.services import normalized, service_of
from service.settings import Settings
from service.settings.sources import PolicyWord

C = TypeVar("C", bound=Callable[..., Any])
Policies = Mapping[str, PolicyWord]
"""Service -> policy; the empty name is the general policy."""

_WORDS: Final[dict[str, PolicyWord]] = {"delete": "delete", "retain": "retain"}


def deletion_policy_option(command: C) -> C:
    """The command gets the parsed values as `policies`."""
    option = click.option(
        "--deletion-policy",
        "policies",
        multiple=True,
        metavar="[SERVICE=]delete|retain",
        callback=lambda _context, _parameter, said: parse_policies(said),
        help="What happens to what objects own outside, where neither they nor their Namespaces say it: in general "
        "(retain), or for one service (s3=retain). Repeatable; replaces policy.deletion_policy and policy.services of "
        "the settings. Watchers and workers must be told the same.",
    )
    return option(command)


def parse_policies(said: tuple[str, ...]) -> Policies:
    found: dict[str, PolicyWord] = {}
    for one in said:
        name, equals, word = one.rpartition("=")
        service, policy = normalized(name), _WORDS.get(word.strip().lower())
        if policy is None or (equals and not service):
            raise click.BadParameter(
                f"{clean(one)!r} given; allowed: delete, retain, SERVICE=delete, SERVICE=retain (such as s3=retain)"
            )
        if found.setdefault(service, policy) != policy:
            raise click.BadParameter(
                f"both delete and retain given {f'for {clean(service)}' if service else 'for all'}"
            )
    return found


def override_policies(settings: Settings, policies: Policies) -> Settings:
    """Raises InvalidUsage for a service that no source has: a typo must not delete what should be kept."""
    known = {_service(one.resource, one.service) for one in settings.sources.values()} - {""}
    for service in policies:
        if service and service not in known:
            raise InvalidUsage(
                f"--deletion-policy: no source is about service {clean(service)!r}; services of the sources: "
                f"{', '.join(sorted(known)) or 'none'}"
            )
    policy = settings.policy
    # The settings may spell the same service differently.
    kept = {name: word for name, word in policy.services.items() if normalized(name) not in policies}
    services = {**kept, **{service: word for service, word in policies.items() if service}}
    general = policies.get("", policy.deletion_policy)
    changed = msgspec.structs.replace(policy, deletion_policy=general, services=services)
    return msgspec.structs.replace(settings, policy=changed)


def _service(resource: str, setting: str) -> str:
    return service_of(resource.partition(".")[2], setting)
