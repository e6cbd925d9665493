"""Conformance suite: what Knell relies on of a Kubernetes API server, run on the real kube-apiserver and the embedded
one. Where they differ, the real one is right."""
