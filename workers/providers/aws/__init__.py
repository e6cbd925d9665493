"""AWS: the client, and the handler of every kind of resource. Whose a resource is, collectors know: see `claims`.

`services` has one row per AWS service. `kinds/` declares one kind of resource per file, and `removal` deletes any of
them. `client/` makes the calls, `reading/` batches describe calls. Begin with `model` and `claims`, then `removal`;
`components` builds all of it for a worker.
"""
