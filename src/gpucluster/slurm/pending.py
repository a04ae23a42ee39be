"""Why Slurm keeps a job pending: the reasons that decisions and checks read. `elastic.inspect.why.reasons` explains all of them."""

from enum import StrEnum


class PendingReason(StrEnum):
    """The reason as the JSON of slurmctld writes it."""

    NONE = "None"
    RESOURCES = "Resources"
    PRIORITY = "Priority"
    REQUESTED_NODES = "ReqNodeNotAvail"
    BEGIN_TIME = "BeginTime"
    CLEANING = "Cleaning"
    HELD_BY_USER = "JobHeldUser"


# Slurm's reasons of a job that starts as soon as there are nodes for it. Others wait for something else: a limit, a
# licence, a dependency, a closed partition. BeginTime and Cleaning end by themselves soon. "": no reason yet.
WAITS_FOR_NODES = frozenset(
    {
        "",
        PendingReason.NONE,
        PendingReason.RESOURCES,
        PendingReason.PRIORITY,
        PendingReason.REQUESTED_NODES,
        PendingReason.BEGIN_TIME,
        PendingReason.CLEANING,
    }
)
FIRST_IN_LINE = frozenset({PendingReason.RESOURCES, PendingReason.REQUESTED_NODES})  # only nodes are missing
OTHERS_USE_NODES = frozenset({PendingReason.RESOURCES, PendingReason.PRIORITY})
