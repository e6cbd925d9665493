"""List of all contenders, in the order in which the report shows them.

The package itself names none: Knell's own processes are in it, and must not import the harness."""

from bench.contenders.admission import AdmissionPolicy, NoAdmission
from bench.contenders.arq import Arq
from bench.contenders.asynq import Asynq
from bench.contenders.bare import Bare
from bench.contenders.buckets import Buckets
from bench.contenders.bullmq import BullMQ
from bench.contenders.capa import Capa
from bench.contenders.dramatiq import Dramatiq, DramatiqTuned
from bench.contenders.karpenter import Karpenter
from bench.contenders.knell import Knell
from bench.contenders.kopf import Kopf
from bench.contenders.kubernetes_asyncio import KubernetesAsyncio
from bench.contenders.protocol import Contender
from bench.contenders.quotas import Quotas
from bench.contenders.raw import Raw
from bench.contenders.saq import Saq
from bench.contenders.streaq import Streaq
from bench.contenders.taskiq import Taskiq

CONTENDERS: tuple[Contender, ...] = (
    Knell(),
    Raw(),
    Arq(),
    Saq(),
    Taskiq(),
    Streaq(),
    Dramatiq(),
    DramatiqTuned(),
    BullMQ(),
    Asynq(),
    Bare(),
    Kopf(),
    KubernetesAsyncio(),
    NoAdmission(),
    AdmissionPolicy(),
    Buckets(),
    Capa(),
    Quotas(),
    Karpenter(),
)

PYTHON_PEERS: tuple[str, ...] = tuple(peer.name for peer in CONTENDERS if peer.kind == "python")

__all__ = ["CONTENDERS", "PYTHON_PEERS", "Contender"]
