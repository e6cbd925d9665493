"""Status of deletions, reported to the objects' own cluster as Events and conditions.

Begin with `status_reporter`, which queues and writes them; `messages` has their texts. Reporting is best effort: it
never delays or fails a job.
"""
