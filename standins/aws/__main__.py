"""Entry point of the AWS stand-in as a process: started by `LocalAws`, which passes it a socket.
Its first line of output is a JSON object with its address."""

import socket

import click
import msgspec

from standins.aws.behaviour import AwsBehaviour
from standins.aws.server import AwsServer
from standins.http_server import serve_until_signal


@click.command()
@click.option("--socket", "descriptor", type=int, required=True, help="The inherited socket that it listens on.")
@click.option("--rate", default=1.0, help="Speed of its clock; 1 is real time.")
@click.option("--behaviour", "text", default="{}", help="JSON, as for POST /_knell/behaviour.")
def aws(descriptor: int, rate: float, text: str) -> None:
    """Run a stand-in for AWS until SIGTERM or SIGINT."""
    listener = socket.socket(fileno=descriptor)
    serve_until_signal(AwsServer(msgspec.json.decode(text, type=AwsBehaviour), rate=rate, listener=listener))


if __name__ == "__main__":
    aws()
