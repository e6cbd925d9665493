"""A real Kubernetes control plane on local ports, for the tests and the demo: etcd, kube-apiserver and
kube-controller-manager. They are children of the calling process and end with it; `make controlplane` builds them."""

from standins.controlplane.kubectl import KubectlFailed
from standins.controlplane.plane import ControlPlane
from standins.controlplane.programs import NoControlPlane, Programs, available, find_programs

__all__ = ["ControlPlane", "KubectlFailed", "NoControlPlane", "Programs", "available", "find_programs"]
