"""Command line of `knell` with the simulated collector: `SIMULATED_PROVIDER=URL python -m tests.simulated work`."""

import os

from service.cli.main import main
from tests.simulated.extension import ADDRESS, SimulatedExtension

if __name__ == "__main__":
    main(extension=SimulatedExtension(os.environ[ADDRESS]))
