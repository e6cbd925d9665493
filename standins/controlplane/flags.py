"""Command-line flags of the control plane's programs: small, fast, on 127.0.0.1 only.
Flags that are omitted have the defaults of a real cluster, so that behaviour is the same."""

from pathlib import Path
from typing import Final

# Needed without nodes: deletion of Namespaces, cascading owner references, and in every Namespace the default service
# account and the CA certificate.
_CONTROLLERS: Final = (
    "namespace-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "root-ca-certificate-publisher-controller",
)


def etcd_flags(port: int, data: Path) -> tuple[str, ...]:
    address = f"http://127.0.0.1:{port}"
    return (
        f"--data-dir={data}",
        f"--listen-client-urls={address}",
        f"--advertise-client-urls={address}",
        # There are no peers, but the flag is required; any port will do.
        "--listen-peer-urls=http://127.0.0.1:0",
        # Data must survive a killed process, not a power failure.
        "--unsafe-no-fsync",
    )


def apiserver_flags(port: int, etcd_port: int) -> dict[str, str]:
    return {
        "etcd-servers": f"http://127.0.0.1:{etcd_port}",
        "secure-port": str(port),
        "bind-address": "127.0.0.1",
        # Without it the server looks for an address of the machine and fails if there is no network.
        "advertise-address": "127.0.0.1",
        "endpoint-reconciler-type": "none",
        "anonymous-auth": "false",
        "authorization-mode": "RBAC",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-cluster-ip-range": "10.0.0.0/24",
    }


def controller_flags(kubeconfig: Path, signing_key: Path, ca: Path) -> tuple[str, ...]:
    return (
        f"--kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={signing_key}",
        f"--root-ca-file={ca}",
        f"--controllers={','.join(_CONTROLLERS)}",
        "--leader-elect=false",
        "--secure-port=0",
        "--use-service-account-credentials=false",
    )
