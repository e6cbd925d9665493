"""A real Kubernetes control plane on local ports, for the tests and the demo: etcd, kube-apiserver and
kube-controller-manager. Begin with `control_plane.ControlPlane`, which starts them as child processes; `build` and its
neighbours (`make controlplane`) compile the binary, and `programs` finds it."""

from standins.controlplane.control_plane import ControlPlane
from standins.controlplane.kubectl import KubectlFailed
from standins.controlplane.programs import NoControlPlane, Programs, available, find_programs

__all__ = ["ControlPlane", "KubectlFailed", "NoControlPlane", "Programs", "available", "find_programs"]
