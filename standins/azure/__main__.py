"""Entry point of the Azure stand-in as a process: started by `LocalAzure`, which passes it a socket.
Its first line of output is a JSON object with its address."""

import socket

import click
import msgspec

from standins.azure.behaviour import AzureBehaviour
from standins.azure.server import AzureServer
from standins.http_server import serve_until_signal


@click.command()
@click.option("--socket", "descriptor", type=int, required=True, help="The inherited socket that it listens on.")
@click.option("--rate", default=1.0, help="Speed of its clock; 1 is real time.")
@click.option("--behaviour", "text", default="{}", help="JSON, as for POST /_knell/behaviour.")
def azure(descriptor: int, rate: float, text: str) -> None:
    """Run a stand-in for Azure until SIGTERM or SIGINT."""
    listener = socket.socket(fileno=descriptor)
    serve_until_signal(AzureServer(msgspec.json.decode(text, type=AzureBehaviour), rate=rate, listener=listener))


if __name__ == "__main__":
    azure()
