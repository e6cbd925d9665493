"""Environments from which the SDKs of AWS and Azure take credentials: variables, files, programs, servers.
Each is tried twice: once it works, once the server that is called responds with the request it got."""

import hashlib
import subprocess
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from standins.aws.builder import REGION
from tests.scenarios.canaries.canary_setup import CanarySetup, role_arn
from tests.scenarios.canaries.commands import CommandOutputs, configured, planning
from tests.scenarios.canaries.steps import quiet

_SSO: str = "https://sso.invalid/start"


class Environment(NamedTuple):
    variables: Mapping[str, str]
    reach: tuple[str, ...]
    """Words that must reach a gateway while it works."""
    alone: bool = False
    """Whether it needs a process of its own."""


async def tried(scene: CanarySetup, told: CommandOutputs) -> None:
    await scene.unmanaged("living", await scene.builder.vpc())
    clouds = (
        (_aws(scene), planning(scene, "living"), ("aws", "issuer")),
        (_azure(scene), ("sweep", "--dry-run"), ("issuer", "entra")),
    )
    for environments, words, asked in clouds:
        for name, environment in environments.items():
            await _tried(scene, told, name, environment, words, asked)
    await _through_proxy(scene, told)


async def _tried(
    scene: CanarySetup,
    told: CommandOutputs,
    name: str,
    environment: Environment,
    words: Iterable[str],
    asked: Iterable[str],
) -> None:
    ask = told.ask_process if environment.alone else told.ask
    called = ("--config", _config(scene), *words)
    quiet(scene)
    await ask(environment.variables, *called)
    there = set().union(*(gateway.seen for gateway in scene.gateways.values()))
    assert set(environment.reach) <= there, (name, told.places[-1])
    for gateway in asked:
        scene.gateways[gateway].echo = 400
    scene.ways.breaks()
    await ask(environment.variables, *called)
    scene.ways.mended()


async def _through_proxy(scene: CanarySetup, told: CommandOutputs) -> None:
    quiet(scene)
    word = scene.known["proxy of the environment"]
    address = f"http://somebody:{word}@{scene.proxy.address}"
    variables = {"HTTP_PROXY": address, "http_proxy": address, "NO_PROXY": "", "no_proxy": ""}
    for words in (planning(scene, "living"), ("sweep", "--dry-run")):
        scene.proxy.seen.discard(word)
        await told.ask(variables, "--config", _config(scene), *words)
        assert word in scene.proxy.seen, words


def _config(scene: CanarySetup) -> str:
    """One way to the cluster is enough."""
    sources = {name: one for name, one in scene.document["sources"].items() if one["collector"] != "none"}
    ways = {"token": scene.document["clusters"]["token"]}
    return str(configured(scene, "environments", clusters=ways, sources=sources))


# ---- AWS


def _aws(scene: CanarySetup) -> dict[str, Environment]:
    known, issuer = scene.known, scene.gateways["issuer"].url
    nothing = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": ""}
    sts = {"AWS_ENDPOINT_URL_STS": scene.gateways["aws"].url}

    def file(name: str, *lines: str) -> str:
        return str(scene.write(f"aws-{name}", "\n".join(lines)))

    def key(name: str) -> tuple[str, ...]:
        return f"aws_access_key_id = {_id(scene)}", f"aws_secret_access_key = {known[f'aws {name} secret key']}"

    def session(name: str) -> str:
        return f"aws_session_token = {known[f'aws {name} session token']}"

    role = ("[profile tenant]", f"role_arn = {role_arn('profile')}", "source_profile = base",
            f"external_id = {known['aws profile external id']}", "[profile base]", *key("profile"))  # fmt: skip
    process = scene.ways.program("aws-process", _process_answer(scene), *_words(scene, "process"))
    web = {"AWS_ROLE_ARN": role_arn("web"), "AWS_WEB_IDENTITY_TOKEN_FILE": file("web", known["aws web identity token"])}
    container = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{issuer}/container"}
    held = {"AWS_CONTAINER_AUTHORIZATION_TOKEN": known["aws container token"]}
    named = {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file("container", known["aws container token in a file"])}
    machine = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": issuer, "AWS_EC2_METADATA_DISABLED": "false"}
    shared = file("shared", "[default]", *key("shared"), session("shared"))
    config = file("config", "[default]", *key("config"), session("config"))
    found = {
        "shared-credentials-file": ({"AWS_SHARED_CREDENTIALS_FILE": shared}, ["shared session token"]),
        "config-file": ({"AWS_CONFIG_FILE": config}, ["config session token"]),
        "custom-process": (
            {"AWS_CONFIG_FILE": file("calls", "[default]", f"credential_process = {process}")},
            ["process session token"],
        ),
        "assume-role": (
            {"AWS_CONFIG_FILE": file("role", *role), "AWS_PROFILE": "tenant", **sts},
            ["profile external id", "issued session token"],
        ),
        "assume-role-with-web-identity": ({**web, **sts}, ["web identity token", "issued session token"]),
        "container-role": ({**container, **held}, ["container token", "container session token"]),
        "container-role by a file": ({**container, **named}, ["container token in a file"]),
        "iam-role": (machine, ["machine token", "machine session token"]),
        "ec2-credentials-file": (
            {"AWS_CREDENTIAL_FILE": file("ec2", f"AWSAccessKeyId={_id(scene)}",
                                         f"AWSSecretKey={known['aws ec2 file secret key']}")}, [],
        ),
        "boto-config": ({"BOTO_CONFIG": file("boto", "[Credentials]", *key("boto"))}, []),
    }  # fmt: skip
    made = {
        name: Environment({**nothing, **variables}, tuple(known[f"aws {word}"] for word in words))
        for name, (variables, words) in found.items()
    }
    return {**made, "sso": Environment({**nothing, **_sso(scene)}, (known["aws sso token"],), alone=True)}


def _id(scene: CanarySetup) -> str:
    return f"AKIA{scene.account}"


def _words(scene: CanarySetup, name: str) -> list[str]:
    return [scene.known[f"aws {name} {what}"] for what in ("secret key", "session token")]


def _process_answer(scene: CanarySetup) -> dict[str, object]:
    secret, token = _words(scene, "process")
    return {"Version": 1, "AccessKeyId": _id(scene), "SecretAccessKey": secret, "SessionToken": token}


def _sso(scene: CanarySetup) -> dict[str, str]:
    """A person who is logged in: the token lies below the home directory."""
    cache = scene.folder / "home" / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    token = {
        "startUrl": _SSO, "region": REGION, "accessToken": scene.known["aws sso token"],
        "expiresAt": "2099-01-01T00:00:00Z",
    }  # fmt: skip
    # The name is the SDK's.
    name = hashlib.sha1(_SSO.encode()).hexdigest()  # noqa: S324
    (cache / f"{name}.json").write_bytes(msgspec.json.encode(token))
    lines = (
        "[default]", f"sso_start_url = {_SSO}", f"sso_region = {REGION}", f"sso_account_id = {scene.account}",
        "sso_role_name = somebody", "",
    )  # fmt: skip
    config = scene.write("aws-sso", "\n".join(lines))
    return {
        "HOME": str(scene.folder / "home"), "AWS_CONFIG_FILE": str(config),
        "AWS_ENDPOINT_URL_SSO": scene.gateways["issuer"].url,
    }  # fmt: skip


# ---- Azure


def _azure(scene: CanarySetup) -> dict[str, Environment]:
    known = scene.known
    nothing = {"IDENTITY_ENDPOINT": "", "IDENTITY_HEADER": ""}
    who = {
        "AZURE_TENANT_ID": str(uuid.uuid4()), "AZURE_CLIENT_ID": str(uuid.uuid4()),
        "AZURE_AUTHORITY_HOST": scene.gateways["entra"].url, "SSL_CERT_FILE": str(scene.tls_files["tls"].ca),
    }  # fmt: skip
    federated = scene.write("azure-federated", known["azure federated token"])
    certificate = _locked_certificate(scene.folder, known["azure certificate password"])
    machine = {
        "MSI_ENDPOINT": f"{scene.gateways['issuer'].url}/msi/token", "MSI_SECRET": known["azure msi secret"],
    }  # fmt: skip
    return {
        "AZURE_CLIENT_SECRET": Environment(
            {**nothing, **who, "AZURE_CLIENT_SECRET": known["azure client secret"]},
            (known["azure client secret"], known["azure token"]), alone=True,
        ),
        "AZURE_FEDERATED_TOKEN_FILE": Environment(
            {**nothing, **who, "AZURE_FEDERATED_TOKEN_FILE": str(federated)}, (known["azure federated token"],),
            alone=True,
        ),
        "AZURE_CLIENT_CERTIFICATE_PASSWORD": Environment(
            {**nothing, **who, "AZURE_CLIENT_CERTIFICATE_PATH": str(certificate),
             "AZURE_CLIENT_CERTIFICATE_PASSWORD": known["azure certificate password"]}, (), alone=True,
        ),
        "MSI_SECRET": Environment({**nothing, **machine}, (known["azure msi secret"],)),
    }  # fmt: skip


def _locked_certificate(folder: Path, password: str) -> Path:
    """A certificate and its key, which the password unlocks."""
    key, certificate = folder / "azure.key", folder / "azure.crt"
    command = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-keyout", str(key), "-out", str(certificate), "-days", "2",
        "-subj", "/CN=knell", "-passout", f"pass:{password}",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    both = folder / "azure.pem"
    both.write_text(key.read_text() + certificate.read_text())
    return both
