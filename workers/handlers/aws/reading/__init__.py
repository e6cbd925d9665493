"""Reading resources in batches: in few calls, and so that what an answer lacks is proven absent.
EC2 and Elastic Load Balancing each have a way of their own; kinds only say what to ask for."""
