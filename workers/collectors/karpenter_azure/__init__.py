"""Collector of Karpenter's NodeClaims on Azure: which resources they left, which Node protects them, and what a sweep
lists. Begin with `collector.py` (what is planned) and `judge.py` (what is checked before anything is deleted);
`components.py` opens everything for a process."""
