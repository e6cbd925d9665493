"""Watch side: lists and watches the objects of the sources, adds finalizers, and publishes deletion events to Redis.

Begin with the lifecycles, of which each starts the next: watcher.py (the process), cluster_watch.py (per cluster),
share_lease.py (per share), source_watch.py (while the Lease is held), list_watch.py (the loop). What is done with the
objects is in finalizer_mode.py and observe_mode.py. Nothing here knows handlers: an event is a hint, which the workers
check against the live object.
"""
