"""A source and a kind of resource as a newcomer would add them, outside the product: ToyBoxes own DHCP options on AWS.
`declaration.py` is what the control side knows of the source, `collector.py` its worker side, `kind.py` the kind of
resource. Nothing else knows them but `tests/scenarios/test_toy_source.py`, which registers the source."""
