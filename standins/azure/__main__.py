"""The stand-in for Azure as a process of its own: started by `LocalAzure`, which gives it a socket.
Its first line of output is a JSON object with its address."""

import socket

import click
import msgspec

from standins.azure.behaviour import Behaviour
from standins.azure.server import Server
from standins.listening import serve_alone


@click.command()
@click.option("--socket", "descriptor", type=int, required=True, help="The inherited socket that it listens on.")
@click.option("--rate", default=1.0, help="How many of its seconds pass in one of ours.")
@click.option("--behaviour", "text", default="{}", help="JSON, as for POST /_knell/behaviour.")
def azure(descriptor: int, rate: float, text: str) -> None:
    """Run a stand-in for Azure until it is told to stop."""
    listener = socket.socket(fileno=descriptor)
    serve_alone(Server(msgspec.json.decode(text, type=Behaviour), rate=rate, listener=listener))


if __name__ == "__main__":
    azure()
