"""Command line of `knell` with the simulated source: `SIMULATED_PROVIDER=URL python -m tests.simulated work`."""

import os

from service.cli.main import main
from tests.simulated.source import ADDRESS, register_simulated

if __name__ == "__main__":
    register_simulated(os.environ[ADDRESS])
    main()
