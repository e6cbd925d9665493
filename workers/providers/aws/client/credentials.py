"""AWS credentials within this process, how a collector supplies them, and which provider of the default chain failed to
supply the process's own. Credentials with the same secrets are equal, whatever their origin, and their repr shows no
secret."""

from dataclasses import dataclass, field
from traceback import walk_tb
from typing import Any, Final, Protocol

from workers.providers.aws.model import CallScope

OWN_ORIGIN: Final = ("own",)
"""Origin of the process's own credentials."""

# By the SDK's names of its providers. Its errors seldom say which one failed, and operators fix the one that they
# configured.
_PROVIDERS: Final = {
    "env": "the environment (AWS_ACCESS_KEY_ID)",
    "assume-role-with-web-identity": "IRSA (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN)",
    "container-role": "Pod Identity (AWS_CONTAINER_CREDENTIALS_FULL_URI)",
    "shared-credentials-file": "the credentials file",
    "config-file": "the config file",
    "assume-role": "a role of the config file",
    "custom-process": "a process of the config file",
    "sso": "single sign-on of the config file",
    "iam-role": "the machine's metadata",
}


@dataclass(frozen=True, slots=True, repr=False)
class AwsCredentials:
    """`label` names the identity for messages; `origin` is what the credentials were made from, as a cache key."""

    key: str
    secret: str
    token: str = ""
    label: str = field(default="", compare=False)
    origin: tuple[str, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        return f"AwsCredentials({self.label})"


class IdentityResolver(Protocol):
    """Turns the identities that a collector's objects name into credentials."""

    async def credentials(self, scope: CallScope) -> AwsCredentials:
        """For an identity that is not empty, and only if the namespace may use it. Raises NoAccess, with a message that
        says what to do."""

    def forget(self, credentials: AwsCredentials) -> None:
        """Drops credentials that AWS refused."""


def failed_provider(error: BaseException) -> str:
    """The provider that failed, to display, with the STS call if there was one."""
    provider = next((name for one in _causes(error) if (name := _provider_of(one))), "the default chain of AWS")
    operation = getattr(error, "operation_name", "")
    return f"{provider}: sts:{operation}" if operation else provider


def _causes(error: BaseException | None) -> list[BaseException]:
    """A timeout does not say where it happened; the exception that it interrupted does."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _provider_of(error: BaseException) -> str:
    for frame, _ in walk_tb(error.__traceback__):
        here: Any = frame.f_locals.get("self")
        for name in (getattr(here, "METHOD", None), getattr(here, "method", None)):
            if isinstance(name, str) and name in _PROVIDERS:
                return _PROVIDERS[name]
    return ""
