"""Watch side: lists and watches the objects of the sources, adds finalizers, and publishes deletion events to Redis.

Begin with the lifecycles: watcher.py runs a cluster_watch.py per cluster, that a share_lease.py per share, that a
source_watch.py while it holds the Lease, and that the list_watch.py loop. What is done with the objects is in
finalizer_mode.py and observe_mode.py. Nothing here knows handlers: an event is a hint, which the workers check against
the live object."""
