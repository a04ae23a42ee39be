"""When a scheduled event may be moved (T35)."""

from gpucluster.sandbox.aws.ec2.state.values import MaintenanceEvent, Refusal

_FROZEN_S = 5 * 60.0  # the least time before the event's present start
_AHEAD_S = 60 * 60.0  # the least time until the new start


def check_move(event: MaintenanceEvent, to: float, now: float) -> None:
    """Refuse what ModifyInstanceEventStartTime refuses."""
    if event.completed or event.deadline is None or event.not_before - now < _FROZEN_S:
        raise Refusal(
            "InstanceEventStartTimeCannotChange", f"The start time of '{event.id}' cannot be changed."
        )
    if to - now < _AHEAD_S or to > event.deadline:
        raise Refusal(
            "InvalidInstanceEventStartTime",
            "The new start must be an hour ahead at least, and before the event's deadline.",
        )
