"""List of every credential that Knell or one of its libraries reads, by where it is read, with its canaries.
`test_credentials` checks that the list is complete; a credential without a canary has the reason instead."""

import base64
import contextlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote_plus

Names = tuple[str, ...]

SETTINGS: Final[Mapping[str, Names]] = {
    "redis.url": ("redis password in the url", "redis wrong password"),
    "redis.password_file": ("redis password",),
    "redis.sentinel_password_file": ("redis sentinel password", "redis wrong sentinel password"),
    "redis.tls.ca_file": (),
    "redis.tls.cert_file": (),
    "redis.tls.key_file": ("redis tls key", "redis broken tls key"),
    # What is in it is KUBECONFIG.
    "clusters.*.kubeconfig": (),
    "clusters.*.secret": ("kubernetes secret",),
    "clusters.*.in_cluster": ("kubernetes service account",),
    # The key that Knell makes for its webhook, and one that a person gives it.
    "protection.webhook.secret": ("webhook key", "webhook broken key"),
}
"""By setting that holds or names one. Certificates are public."""

KUBECONFIG: Final[Mapping[str, Names]] = {
    "server": (),
    "certificate-authority": (),
    "certificate-authority-data": (),
    "insecure-skip-tls-verify": (),
    "tls-server-name": (),
    "proxy-url": ("kubernetes proxy",),
    "token": ("kubernetes token",),
    "tokenFile": ("kubernetes token-file",),
    "username": (),
    "password": ("kubernetes password",),
    "client-certificate": (),
    "client-certificate-data": (),
    "client-key": ("kubernetes key-file",),
    "client-key-data": ("kubernetes key", "kubernetes broken-key"),
    "exec": (
        "kubernetes plugin", "kubernetes plugin argument", "kubernetes plugin variable", "kubernetes plugin-key",
    ),
    "auth-provider": (
        "kubernetes oidc", "kubernetes oidc refresh token", "kubernetes oidc client secret",
        "kubernetes oidc next refresh token", "kubernetes gcloud",
    ),
}  # fmt: skip
"""By field of a cluster or a user."""

AWS: Final[Mapping[str, Names]] = {
    "env": ("aws secret key", "aws session token"),
    "assume-role": ("aws profile secret key", "aws profile external id"),
    "assume-role-with-web-identity": ("aws web identity token",),
    "sso": ("aws sso token",),
    "shared-credentials-file": ("aws shared secret key", "aws shared session token"),
    "custom-process": ("aws process secret key", "aws process session token"),
    "config-file": ("aws config secret key", "aws config session token"),
    "ec2-credentials-file": ("aws ec2 file secret key",),
    "boto-config": ("aws boto secret key",),
    "container-role": (
        "aws container token", "aws container token in a file", "aws container secret key",
        "aws container session token",
    ),
    "iam-role": ("aws machine token", "aws machine secret key", "aws machine session token"),
    # It needs the package awscrt, which Knell does not have.
    "login": (),
}  # fmt: skip
"""By method of the SDK's chain."""

AZURE: Final[Mapping[str, Names]] = {
    "AZURE_CLIENT_SECRET": ("azure client secret",),
    "AZURE_CLIENT_CERTIFICATE_PASSWORD": ("azure certificate password",),
    "AZURE_FEDERATED_TOKEN_FILE": ("azure federated token",),
    "IDENTITY_HEADER": ("azure identity header", "azure token"),
    "MSI_SECRET": ("azure msi secret",),
}
"""By variable of azure-identity."""

OTHERS: Final[Names] = (
    "aws issued secret key", "aws issued session token", "aws static secret key", "aws static session token",
    "aws external id", "proxy of the environment", "unknown setting",
)  # fmt: skip
"""Keys that AWS issues for a role, those of an AWSClusterStaticIdentity, the external id of an AWSClusterRoleIdentity,
and what stands where nothing should."""

LISTS: Final = (SETTINGS, KUBECONFIG, AWS, AZURE)

UNSENT: Final = frozenset({
    # Servers of Redis are no gateways; that these were used shows in what works by them, and what does not.
    *(name for names in SETTINGS.values() for name in names if name.startswith("redis")),
    # Not keys.
    "kubernetes broken-key", "unknown setting",
    # Given to a program, not to a server.
    "kubernetes plugin argument", "kubernetes plugin variable",
    # Made while it runs, so that no gateway knows it; and one that Knell reads and sends to no server.
    "webhook key", "webhook broken key",
    # Issued, and forgotten.
    "kubernetes oidc next refresh token",
    # Unlocks a key on this machine.
    "azure certificate password",
})  # fmt: skip
"""Which reach no gateway. Those that only sign requests reach none either; they are named for it: `secret key`."""


class Canaries:
    """One word for each credential, made for this run. They have no form that any pattern knows."""

    def __init__(self) -> None:
        listed = [name for one in LISTS for names in one.values() for name in names]
        self.all = {name: f"canary{number:02}{secrets.token_hex(12)}" for number, name in enumerate([*listed, *OTHERS])}

    def __getitem__(self, name: str) -> str:
        return self.all[name]

    def take_key(self, name: str, text: str) -> None:
        """A private key is its own canary: sixteen characters of its base64, after what all such keys share."""
        self.all[name] = text.splitlines()[1][48:64]

    def sendable(self) -> set[str]:
        return {name for name in self.all if name not in UNSENT and not name.endswith("secret key")}

    def forms(self) -> dict[str, tuple[bytes, ...]]:
        """By name, how a canary may show itself: plain, and in base64 wherever in a text it began."""
        found: dict[str, tuple[bytes, ...]] = {}
        for name, canary in self.all.items():
            encoded = []
            for shift in range(3):
                whole = base64.b64encode(b"x" * shift + canary.encode())
                # What stands at the edges depends on the neighbours.
                encoded.append(whole[4 : len(whole) - 4])
            found[name] = (canary.encode(), *encoded)
        return found


def carried(text: str, canaries: Iterable[str]) -> Iterator[str]:
    """The canaries in a text, plain or in the base64 of a Basic header."""
    texts = [text, unquote_plus(text)]
    for word in text.split():
        with contextlib.suppress(ValueError):
            texts.append(base64.b64decode(word, validate=True).decode())
    return (one for one in canaries if any(one in found for found in texts))
