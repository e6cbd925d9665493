"""Which link of the SDK's chain of credentials has failed: the environment, IRSA, Pod Identity, files, the machine.
People mend the one that they have set up, and the SDK's own errors seldom name it."""

from traceback import walk_tb
from typing import Any, Final

# By the names that the SDK has for its providers.
_LINKS: Final = {
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


def failed_link(error: BaseException) -> str:
    """For people; with the call to AWS that failed, if there was one."""
    link = next((name for one in _causes(error) if (name := _link_of(one))), "the default chain of AWS")
    operation = getattr(error, "operation_name", "")
    return f"{link}: sts:{operation}" if operation else link


def _causes(error: BaseException | None) -> list[BaseException]:
    """A timeout says nothing of where it happened; what it interrupted does."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _link_of(error: BaseException) -> str:
    for frame, _ in walk_tb(error.__traceback__):
        here: Any = frame.f_locals.get("self")
        for name in (getattr(here, "METHOD", None), getattr(here, "method", None)):
            if isinstance(name, str) and name in _LINKS:
                return _LINKS[name]
    return ""
