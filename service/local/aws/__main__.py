"""The stand-in for AWS as a process of its own: `python -m service.local.aws --port 0`.
Its first line of output is a JSON object with its address."""

import click
import msgspec

from service.local.aws.behaviour import Behaviour
from service.local.aws.server import Server
from service.local.listening import serve_alone


@click.command()
@click.option("--port", default=0, help="0 takes any free port.")
@click.option("--rate", default=1.0, help="How many of its seconds pass in one of ours.")
@click.option("--behaviour", "text", default="{}", help="JSON, as for POST /_knell/behaviour.")
def aws(port: int, rate: float, text: str) -> None:
    """Run a stand-in for AWS until it is told to stop."""
    serve_alone(Server(msgspec.json.decode(text, type=Behaviour), rate=rate, port=port))


if __name__ == "__main__":
    aws()
