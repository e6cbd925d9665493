"""Collector for Cluster API clusters on AWS (AWSCluster and AWSManagedControlPlane).

Begin with `collector`: it parses the object (`capa_object`), checks the preconditions (`preconditions`, `accounts`,
`namesakes`), finds the resources by their tags (`resource_finder`, `ownership`) and returns the targets of a plan.
`judge` answers the AWS provider's questions about a claim, and `kinds` says which task removes which kind.
`final_check` is the last job of every deletion; `retention` tags what stays when an object is released without cleanup.
"""
