"""Batched reads with describe calls, such that an id missing from the result is proven absent. `ec2` reads by filter,
`elb` by name with a fallback for missing names; a kind only declares which call to make."""
