"""Command `make demo`: runs two replicas of Knell on a local API server, against stand-ins for AWS and Azure.
The exit code is 0 only if the API server, AWS's and Azure's own lists and journals show that all is well."""

import asyncio

import click

from service import logs
from service.cli import output
from service.cli.session import CommandError, output_option
from service.kubernetes import ClusterError
from service.settings import LogSettings
from standins.api_servers import ApiServerChoice, choose
from standins.controlplane import NoControlPlane
from standins.demo.azure_subscription import RESERVED, SPAN
from standins.demo.deletion_denial import DenialFailed
from standins.demo.display import Display
from standins.demo.fleet import Fleet, make_fleet
from standins.demo.processes import DemoProcesses
from standins.demo.scenario import DemoFailed, run_scenario
from standins.demo.summary import summary_table
from standins.redis_servers import NoServerError
from standins.stand_in_process import StandInFailed


@click.command()
@click.option("--clusters", type=click.IntRange(4, 60), default=12, show_default=True, help="AWSClusters to delete.")
@click.option("--nodes", type=click.IntRange(4, 200), default=20, show_default=True, help="NodeClaims to delete.")
@click.option(
    "--api",
    type=click.Choice(["auto", "real", "embedded"]),
    default="auto",
    show_default=True,
    help="The API server: the real control plane where `make controlplane` has built it, or the embedded one.",
)
@output_option
def demo(clusters: int, nodes: int, api: ApiServerChoice, form: str) -> None:
    """Show it at work on a local API server.

    Starts Valkey, an API server, stand-ins for AWS and Azure and two replicas of Knell; creates Cluster API clusters
    on AWS, Karpenter nodes on Azure and objects of ACK, of which no controller runs; shows how the API server denies
    the deletion of a protected one; deletes them with the ordinary API, kills a replica in the middle, and judges the
    end by the API server and by the lists and journals of AWS and Azure.
    """
    logs.configure(LogSettings(level="error"))
    fleet = make_fleet(clusters, nodes)
    display = Display(quiet=form == "json")
    display.console.print(_introduction(fleet))
    try:
        with DemoProcesses(choose(api)) as processes:
            with display.busy("starting Valkey, an API server, and stand-ins for AWS and Azure"):
                processes.start()
            display.say("started Valkey, an API server, and stand-ins for AWS and Azure")
            display.say(f"Kubernetes is {processes.api.words}")
            summary, problems = asyncio.run(run_scenario(processes, fleet, display))
    except (NoServerError, NoControlPlane, StandInFailed, DemoFailed, DenialFailed, ClusterError) as error:
        raise CommandError(str(error)) from None
    except KeyboardInterrupt:
        raise CommandError("interrupted; everything that was started has been stopped") from None
    if form == "json":
        output.show_json({"summary": summary, "problems": problems})
    else:
        display.console.print(summary_table(summary))
    if problems:
        raise CommandError("\n  ".join(("the demo did not end as it should:", *problems)))
    if form != "json":
        display.console.print("Everything that had to go is gone, and nothing else was touched.", style="green")


def _introduction(fleet: Fleet) -> str:
    return (
        f"{len(fleet.deleted_clusters)} Cluster API clusters on AWS and {len(fleet.deleted_nodes)} Karpenter nodes on "
        f"Azure are deleted,\nand {len(fleet.deleted_ack)} objects of AWS Controllers for Kubernetes (ACK).\n"
        "What they own there must be deleted too: load balancers, security groups,\n"
        "machines, interfaces, disks, addresses; and nothing else. Minutes are shown as\n"
        f"seconds: Azure reserves an interface for {SPAN.total_seconds():.0f} s here, not for {RESERVED:.0f} s."
    )


if __name__ == "__main__":
    demo(prog_name="python -m standins.demo")
