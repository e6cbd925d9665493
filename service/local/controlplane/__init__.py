"""A real Kubernetes control plane on local ports, for the tests and the demo: etcd, kube-apiserver and
kube-controller-manager. They are children of the calling process and end with it; `make controlplane` builds them."""

from service.local.controlplane.kubectl import KubectlFailed
from service.local.controlplane.plane import ControlPlane
from service.local.controlplane.programs import NoControlPlane, Programs, available, find_programs

__all__ = ["ControlPlane", "KubectlFailed", "NoControlPlane", "Programs", "available", "find_programs"]
