"""How the programs of a control plane are told to serve one machine's tests: small, quick, on 127.0.0.1 only.
Flags that are left out have the defaults of a real cluster, so that what is seen here is what is seen there."""

from pathlib import Path
from typing import Final

# What a cluster without nodes needs: a deleted Namespace goes, owner references cascade, and every Namespace has its
# default service account and the CA's certificate.
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
        # It has no peers, but insists on listening for them: on any port.
        "--listen-peer-urls=http://127.0.0.1:0",
        # What survives a killed process is enough; nobody pulls the plug of a test.
        "--unsafe-no-fsync",
    )


def apiserver_flags(port: int, etcd_port: int) -> dict[str, str]:
    return {
        "etcd-servers": f"http://127.0.0.1:{etcd_port}",
        "secure-port": str(port),
        "bind-address": "127.0.0.1",
        # Else it looks for an address of the machine to tell to pods, and fails on one without a network.
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
