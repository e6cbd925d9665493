"""External resources of Cluster API clusters on AWS: finding, judging, removing.

One entry of `kinds` describes one kind of resource; everything else is the same for all of them.
"""
