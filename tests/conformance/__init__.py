"""What Knell relies on of a Kubernetes API server, told once and asked of both: the real kube-apiserver and the
embedded one. Where they differ, the real one is right."""
