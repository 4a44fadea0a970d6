"""All records; each has its check, its change and its log lines in the file of its entity."""

from typing import TypeAlias

from stoker.service.dispatcher.state.boots import *
from stoker.service.dispatcher.state.clients import *
from stoker.service.dispatcher.state.datasets import *
from stoker.service.dispatcher.state.iterations import *
from stoker.service.dispatcher.state.jobs import *
from stoker.service.dispatcher.state.splits import *
from stoker.service.dispatcher.state.tasks import *
from stoker.service.dispatcher.state.workers import *

AnyRecord: TypeAlias = (
    Booted
    | IdsReserved
    | DatasetAdded
    | DatasetKept
    | TreeDropped
    | DatasetRemoved
    | WorkerAdded
    | WorkerDrainBegun
    | WorkerLost
    | TaskDied
    | JobAdded
    | JobDatasetChanged
    | JobCancelled
    | IterationAdded
    | IterationFailed
    | WorkersWait
    | AgreementChanged
    | TasksStopped
    | IterationRemoved
    | PageStored
    | PageListed
    | ListingDropped
    | SplitsKnown
    | SplitsBegun
    | SplitsDone
    | TaskAdded
    | ReaderAdded
    | ReaderRevoked
    | ReaderRemoved
    | TaskEnded
    | TaskEndReceived
    | TaskDelivered
    | TaskDropped
    | DropsCounted
    | ClientAdded
    | ClientRemoved
)
