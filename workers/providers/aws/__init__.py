"""AWS: the client, and every kind of resource. Whose a resource is, collectors know: see `claims`.

`services` has one row per AWS service. `kinds/` declares one kind of resource per file, and `kind_calls` makes its
calls for `workers/removal.py`. `client/` sends them, `reading/` batches describe calls. Begin with `model` and
`claims`, then `kind_calls`; `components` builds all of it for a worker.
"""
