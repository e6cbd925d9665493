"""Checks that the list of credentials is complete: settings, kubeconfigs, and the chains of both SDKs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest
from azure.identity._constants import EnvironmentVariables

from service.kubernetes import kubeconfig
from service.masking import names_secret
from service.settings import Settings
from service.settings.redis import RedisUrl, Secret
from service.settings.values import is_struct, unwrap_type
from tests.scenarios.canaries import credentials
from workers.providers.aws.client.sessions import new_session
from workers.providers.azure.clients import AzureClients


def leaves(kind: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for info in msgspec.structs.fields(kind):
        here, (bare, _, _) = f"{path}{info.encode_name}", unwrap_type(info.type)
        while get_origin(bare) in (dict, tuple):
            here, (bare, _, _) = f"{here}.*", unwrap_type(get_args(bare)[get_origin(bare) is dict])
        if is_struct(bare):
            yield from leaves(bare, f"{here}.")
        else:
            yield here, bare


def test_every_setting_that_may_hold_a_credential_or_name_a_file_is_on_the_list() -> None:
    found = {
        path
        for path, kind in leaves(Settings)
        if kind in (Path, RedisUrl, Secret) or names_secret(path.rpartition(".")[2])
    }
    assert found | {"clusters.*.in_cluster"} == set(credentials.SETTINGS)


def test_every_field_of_a_kubeconfig_is_on_the_list() -> None:
    fields = [
        info
        for kind in (kubeconfig.KubeconfigCluster, kubeconfig.KubeconfigUser)
        for info in msgspec.structs.fields(kind)
    ]
    assert {info.encode_name for info in fields} == set(credentials.KUBECONFIG)


def test_every_method_by_which_the_sdk_of_aws_finds_credentials_is_on_the_list() -> None:
    chain: Any = new_session().get_component("credential_provider")
    assert {provider.METHOD for provider in chain.providers} == set(credentials.AWS)


async def test_every_variable_that_brings_azure_a_secret_is_on_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {value for name, value in vars(EnvironmentVariables).items() if isinstance(value, str) and name[0] != "_"}
    for name in named:
        monkeypatch.delenv(name, raising=False)
    async with AzureClients("http://127.0.0.1:9") as clients:
        chain = {type(one).__name__ for one in clients._credential("").credentials}
    # Workload identity fails until it is set up.
    assert chain == {"EnvironmentCredential", "AsyncFailedDACCredential", "ManagedIdentityCredential"}
    secret = {name for name in named if any(word in name for word in ("SECRET", "PASSWORD", "TOKEN", "HEADER"))}
    # An address, a name of a credential, and a password that the SDK does not use any more.
    others = {"AZURE_KUBERNETES_TOKEN_PROXY", "AZURE_TOKEN_CREDENTIALS", "AZURE_PASSWORD"}
    assert secret - others == set(credentials.AZURE)
