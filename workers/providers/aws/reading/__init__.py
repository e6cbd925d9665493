"""Batched reads with describe calls, such that an id missing from the result is proven absent. Begin with `ec2`, which
reads by filter; `elb` reads by name with a fallback for missing names; a kind only declares which call to make."""
