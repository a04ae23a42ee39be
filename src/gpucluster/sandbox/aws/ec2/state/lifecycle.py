"""The state of one instance as a function of time and of reports of the launcher. Pure.

pending -> running -> shutting-down -> terminated
              |-----> stopping -> stopped -> pending
A launcher's `ended` before anyone asked is an end of its own: by the guest, or of the host.
"""

from dataclasses import replace

from gpucluster.cloud.port import InstanceState
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, Timing

ENDED = InstanceState.TERMINATED
USER = ("Client.UserInitiatedShutdown", "User initiated ({when})")
SPOT = ("Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination")
BLOCK = ("Server.CapacityBlockEnd", "Server.CapacityBlockEnd: the capacity block ends")  # not verified
GUEST = "Client.InstanceInitiatedShutdown"


def advance(instance: Ec2Instance, timing: Timing, now: float) -> Ec2Instance:
    """Return the instance as it is at `now`, by time alone."""
    while True:
        after = _step(instance, timing, now)
        if after is instance:
            return instance
        instance = after


def begin_end(instance: Ec2Instance, now: float, code: str, reason: str) -> Ec2Instance:
    """Begin the termination. An ending instance stays as it is; a stopped one ends at once."""
    if instance.state in (InstanceState.SHUTTING_DOWN, ENDED):
        return instance
    if instance.state is InstanceState.STOPPED:
        instance = replace(instance, reason_code=code, reason=reason)
        return finish(instance, now)
    return replace(
        instance,
        state=InstanceState.SHUTTING_DOWN,
        since=now,
        reason_code=code,
        reason=reason,
        notice_at=None,
    )


def begin_stop(instance: Ec2Instance, now: float, code: str, reason: str) -> Ec2Instance:
    """Begin to stop a running instance; idempotent."""
    if instance.state not in (InstanceState.RUNNING, InstanceState.PENDING):
        return instance
    return replace(instance, state=InstanceState.STOPPING, since=now, reason_code=code, reason=reason)


def finish(instance: Ec2Instance, now: float) -> Ec2Instance:
    """The machine has ended: stopping becomes stopped, other states terminated and without an address (T24)."""
    if instance.state is InstanceState.STOPPING:
        return replace(instance, state=InstanceState.STOPPED, since=now, public_address=None)
    return replace(instance, state=ENDED, since=now, address=None, public_address=None, notice_at=None)


def ended_by_itself(instance: Ec2Instance, now: float, code: str, reason: str) -> Ec2Instance:
    """The launcher found the machine dead, or ended it as requested."""
    if instance.state in (InstanceState.SHUTTING_DOWN, InstanceState.STOPPING):
        return finish(instance, now)
    if instance.state in (ENDED, InstanceState.STOPPED):
        return instance
    stops = code == GUEST and instance.spec.on_shutdown == "stop"
    state = InstanceState.STOPPING if stops else InstanceState.SHUTTING_DOWN
    return finish(replace(instance, state=state, reason_code=code, reason=reason), now)


def _step(instance: Ec2Instance, timing: Timing, now: float) -> Ec2Instance:
    state, since = instance.state, instance.since
    if state is InstanceState.PENDING and _due(since, timing.pending_s, now):
        return replace(instance, state=InstanceState.RUNNING, since=since + (timing.pending_s or 0.0))
    if state is InstanceState.RUNNING and instance.notice_at is not None and instance.notice_at <= now:
        return begin_end(instance, instance.notice_at, *SPOT)
    if state in (InstanceState.SHUTTING_DOWN, InstanceState.STOPPING) and _due(since, timing.ending_s, now):
        return finish(instance, since + (timing.ending_s or 0.0))
    return instance


def _due(since: float, lasts: float | None, now: float) -> bool:
    return lasts is not None and since + lasts <= now
