"""Sources: one declaration each, with everything that the control side knows of it.
Begin with `declaration.py`, the fields of a declaration, and `capa.py` for an example."""
