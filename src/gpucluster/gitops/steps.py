"""The commands of an edit, in their order, from its events. Pure. NAME stands for the cluster."""

from collections.abc import Iterator

from gpucluster.gitops.events import Controller, Events

POWER_DOWN = "state=power_down_asap"  # only nodes of a cloud
BACKUP = "# back up the data that is lost"
_APPLIED = {Controller.EMPTY, Controller.REPLACED, Controller.HEAD_RESTARTS, Controller.COPIES_STATE}


def before(events: Events) -> Iterator[str]:
    if events.smaller:
        yield f"# keep the size of {', '.join(events.smaller)} in the spec: AWS refuses a smaller one"
    if events.queue_lost:
        yield "squeue --all    # the jobs that are lost"
    if events.lost:
        yield BACKUP
    if events.fleet_stops:
        yield "scontrol update partitionname=PARTITION state=down    # each partition: no job starts"
        yield "squeue --states=running    # until no job runs"
        yield f"scontrol update nodename=ALL {POWER_DOWN}    # nodes of a cloud start anew"
    if events.refused:
        yield f"pulumi state unprotect URN --stack NAME    # each of {', '.join(events.refused)}; their URNs: pulumi stack --show-urns"
    if events.removals.partitions and not events.queue_lost:
        yield "scontrol update jobid=JOB partition=OTHER    # each queued job of a removed partition"


def after(events: Events) -> Iterator[str]:
    if events.left_stopped:
        yield "aws ec2 start-instances --instance-ids HEAD    # `pulumi up` leaves it stopped"
    if events.controller in _APPLIED:
        yield "gpucluster status NAME --wait"
    if events.fleet_stops and not events.queue_lost:
        yield "scontrol update partitionname=PARTITION state=up    # each partition"
    if events.held and not events.fleet_stops and not events.queue_lost:
        yield "gpucluster bundle show -c NAME    # for which jobs the head waits"
        yield "gpucluster bundle apply DIGEST --now -c NAME    # only to end these jobs instead"
    if (events.mounts.added or events.mounts.changed or events.anew) and not events.fleet_stops:
        yield f"scontrol update nodename=NODES {POWER_DOWN}    # so that nodes start with it"
