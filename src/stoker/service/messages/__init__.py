"""Messages of the control plane, between the dispatcher and its workers and clients.

Workers and clients each keep one *session* (a stream) open: `ToDispatcher` in one direction,
`ToWorker` and `ToClient` in the other. A *call* needs no session: a `Request` and its `Reply`. All
are msgspec Structs, tagged by class name, encoded as msgpack. A split is ``(number, value)``: the
value of an index source's split is ``(start, stop)``, of a listed one the value that a worker
listed.
"""

from typing import TypeAlias

from stoker.service.messages.client import *
from stoker.service.messages.coordinated import *
from stoker.service.messages.datasets import *
from stoker.service.messages.deterministic import *
from stoker.service.messages.dynamic import *
from stoker.service.messages.operations import *
from stoker.service.messages.session import *
from stoker.service.messages.sharing import *
from stoker.service.messages.static import *
from stoker.service.messages.supervisor import *
from stoker.service.messages.tasks import *
from stoker.service.messages.worker import *

ToDispatcher: TypeAlias = FromWorker | FromSupervisor | FromClient
FromDispatcher: TypeAlias = ToWorker | SupervisorWelcome | ToClient | HeartbeatInterval | Refused
Request: TypeAlias = (
    RegisterDataset
    | GetDataset
    | GetCluster
    | Probe
    | CloseClient
    | GetStatus
    | CancelJob
    | ForgetDataset
    | DrainWorker
)
Reply: TypeAlias = (
    DatasetRegistered
    | DatasetReply
    | ClusterReply
    | ProbeReply
    | ClientClosed
    | StatusReply
    | Done
    | Failed
)
