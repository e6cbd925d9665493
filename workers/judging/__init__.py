"""Decision whether a deletion may proceed, from the live object, its Namespace and policy: when it is planned
(`planner`) and right before each destructive call (`consent`).

Begin with `inspection`, which reads the object, and `policy_decision`. An event is only a hint: what is read here
decides, and what can't be read holds. `registry_builder` assembles planner, consent, release and reporter for a worker.
"""
