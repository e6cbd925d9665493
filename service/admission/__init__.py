"""Admission of deletions: a DELETE of what the annotation `prevent-delete` protects is denied by the API server.

Begin with judgement.py, which decides about one object and words the denial; the same decision stands in policies.py as
admission policies in CEL, which need no process of ours.
- The webhook: webhook.py runs it, review_endpoint.py receives reviews, reviewer.py answers them; namespace_cache.py and
  contents.py read what an answer needs, denial_events.py posts Events.
- Its certificate: certificate_store.py keeps it in a Secret, certificate_rotation.py says which step is due.
- What is applied to a cluster: manifests.py. protection_status.py compares it with what is there.
"""
