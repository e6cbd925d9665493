"""AWS: the handler of every kind of resource, the client, and the collector of Cluster API clusters.

`kinds/` declares one kind of resource per file, and `removal` deletes any of them. `client/` makes the calls,
`reading/` batches describe calls, and `capa/` finds the resources of a Cluster API cluster. Begin with `model`, then
`removal` and `capa/collector`; `components` builds all of it for a worker.
"""
