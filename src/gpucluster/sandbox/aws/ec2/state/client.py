"""CloudPort and ControlPort over the state, for tests of the elastic daemon.

Refuse, throttle and lose replies by the model's own switches (`model.set_capacity`, `model.faults`); every
call is written to `calls`. Nothing here waits: time is what the given clock says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gpucluster.cloud import eventbridge
from gpucluster.cloud.faults import cloud_error
from gpucluster.cloud.port import (
    NEVER_READABLE,
    CloudError,
    Control,
    Fault,
    FleetAnswer,
    FleetCall,
    FleetError,
    Instance,
    LaunchCall,
    LaunchSpec,
    QueueNotice,
    Reservation,
    Scaling,
    Stamped,
    StampedBody,
    malformed,
)
from gpucluster.plan import names
from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.faults import InjectedFaults
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import (
    Ec2Instance,
    FleetSpec,
    InstanceLaunch,
    NetworkCardRequest,
    Refusal,
    SubnetRef,
)

T = TypeVar("T")
_PROFILE = "arn:aws:iam::123456789012:instance-profile/node"


class ModelCloud:
    """The CloudPort. `subnets` maps zones by subnet id; an unknown subnet is created in the zone of the request."""

    def __init__(
        self, model: CloudModel, clock: Callable[[], float], subnets: Mapping[str, str] | None = None
    ) -> None:
        self.model = model
        self.calls: list[tuple[str, object]] = []
        self.unlisted: CloudError | None = None  # the error of each list of instances
        self._clock = clock
        self._strict = subnets is not None
        self._places: dict[str, SubnetRef] = {}
        for subnet_id, zone in sorted((subnets or {}).items()):
            self._add(subnet_id, zone)

    @property
    def launches(self) -> list[LaunchCall]:
        """All launch requests so far in order, also refused ones."""
        return [argument for _, argument in self.calls if isinstance(argument, LaunchCall)]

    def launch(self, call: LaunchCall) -> tuple[str, ...]:
        """See CloudPort."""
        self.calls.append(("launch", call))
        return self._call("RunInstances", lambda now: self._run(call, now))

    def fleet(self, call: FleetCall) -> FleetAnswer:
        """See CloudPort."""
        self.calls.append(("fleet", call))
        return self._call("CreateFleet", lambda now: self._fleet(call, now))

    def instances(self, cluster: str, also: Sequence[str] = ()) -> tuple[Instance, ...]:
        """See CloudPort."""
        self.calls.append(("instances", cluster))
        if self.unlisted is not None:
            raise self.unlisted
        found = self._call("DescribeInstances", lambda now: self.model.describe((), now))
        wanted = {names.TAG_CLUSTER: cluster, names.TAG_ROLE: names.ROLE_NODE}
        return tuple(view(i) for i in found if wanted.items() <= i.tags.items() or i.id in also)

    def reservations(self, ids: Sequence[str]) -> tuple[Reservation, ...]:
        """See CloudPort."""
        self.calls.append(("reservations", tuple(ids)))
        if not ids:
            return ()
        return self._call("DescribeCapacityReservations", lambda now: self.model.reservations(ids, now))

    def terminate(self, ids: Sequence[str]) -> tuple[str, ...]:
        """See CloudPort."""
        self.calls.append(("terminate", tuple(ids)))
        if not ids:
            return ()
        try:
            self._terminate(ids)
        except CloudError as error:
            if error.fault is not Fault.GONE:
                raise
            if len(ids) == 1:
                return tuple(ids)
            return tuple(x for one in ids for x in self.terminate((one,)))  # one unknown id prevents all
        return ()

    def _terminate(self, ids: Sequence[str]) -> None:
        shown = self._call("DescribeInstances", lambda now: self.model.describe((), now))
        if any(i.id in ids and i.tags.get(names.TAG_ROLE) != names.ROLE_NODE for i in shown):
            words = "You are not authorized to perform this operation."  # the head's role has a condition on the tags
            raise cloud_error("UnauthorizedOperation", words, status=403)
        self._call("TerminateInstances", lambda now: self.model.terminate(ids, now))

    def _run(self, call: LaunchCall, now: float) -> tuple[str, ...]:
        wanted = call.spec
        spec = InstanceLaunch(
            machine=wanted.machine,
            market=wanted.market,
            subnet=self._place(wanted.subnet_id, wanted.zone),
            min_count=call.count if call.at_least is None else call.at_least,
            max_count=call.count,
            token=call.token,
            fingerprint=_fingerprint(call),
            profile=_PROFILE,
            template=(wanted.template_id, wanted.template_version),
            tags=dict(call.tags),
            on_shutdown="terminate",
            reservation=wanted.reservation,
            max_price=wanted.max_price,
            placement_group=wanted.placement_group,
            nics=tuple(
                NetworkCardRequest(card=i.card, device=i.device, kind=i.kind) for i in wanted.interfaces[1:]
            ),
        )
        return tuple(i.id for i in self.model.run(spec, now))

    def _fleet(self, call: FleetCall, now: float) -> FleetAnswer:
        asked = FleetSpec(
            id=self.model.fresh_id("fleet"),
            overrides=tuple(self._override(call, spec) for spec in call.specs),
            count=call.count,
            least=call.count if call.at_least is None else call.at_least,
            token=call.token,
            fingerprint=_fingerprint(call),
        )
        made = self.model.fleet(asked, now)
        machines = [spec.machine for spec in call.specs]
        return FleetAnswer(
            instances=tuple((i, machines[position]) for i, position in made.instances),
            errors=tuple(
                FleetError(machine=machines[position], code=code, message=text)
                for position, code, text in made.errors
            ),
        )

    def _override(self, call: FleetCall, wanted: LaunchSpec) -> InstanceLaunch:
        return InstanceLaunch(
            machine=wanted.machine,
            market=wanted.market,
            subnet=self._place(wanted.subnet_id, wanted.zone),
            min_count=1,
            max_count=call.count,
            token=None,
            fingerprint="",
            profile=_PROFILE,
            template=(wanted.template_id, wanted.template_version),
            tags=dict(call.tags),
            on_shutdown="terminate",
            max_price=wanted.max_price,
            placement_group=wanted.placement_group,
        )

    def _call(self, action: str, do: Callable[[float], T]) -> T:
        now = self._clock()
        try:
            self.model.admit(action, now)
            answer = do(now)
        except Refusal as refusal:
            self.model.record(action, now, refusal.code)
            raise cloud_error(refusal.code, refusal.message, status=refusal.status) from refusal
        self.model.record(action, now)
        if self.model.faults.loses(action):
            raise CloudError(Fault.LOST, "ConnectionClosed", "the reply was lost, as the scenario asked")
        return answer

    def _place(self, subnet_id: str, zone: str) -> SubnetRef:
        if subnet_id not in self._places and self._strict:
            raise cloud_error("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
        return self._places.get(subnet_id) or self._add(subnet_id, zone)

    def _add(self, subnet_id: str, zone: str) -> SubnetRef:
        cidr = f"10.{64 + len(self._places)}.0.0/16"
        place = self._places[subnet_id] = SubnetRef(id=subnet_id, zone=zone, cidr=cidr)
        return place


class ModelObject:
    """The ObjectPort in memory; `readable = False` makes all of it fail as a bucket can."""

    def __init__(self, body: bytes | None = None) -> None:
        self.body, self.readable, self.writes = body, True, 0
        self._version = 0

    def read(self) -> StampedBody:
        """See ObjectPort."""
        self._admit()
        return StampedBody(body=self.body, etag=self._etag)

    def write(self, body: bytes, etag: str | None) -> str | None:
        """See ObjectPort."""
        self._admit()
        if etag != self._etag:
            return None
        self.put(body)
        return self._etag

    def put(self, body: bytes) -> None:
        """Replace the object, as another writer does."""
        self.body, self._version, self.writes = body, self._version + 1, self.writes + 1

    @property
    def _etag(self) -> str | None:
        return None if self.body is None else f'"{self._version}"'

    def _admit(self) -> None:
        if not self.readable:
            raise CloudError(Fault.LOST, "SlowDown", "the bucket does not answer, as the scenario asked")


class ModelControl:
    """The ControlPort in memory; `readable = False` makes all of it fail as a bucket can.

    `faults` refuses by S3's words: `next_error("PutObject", "ConditionalRequestConflict")`, `lose_reply("PutObject")`.
    """

    def __init__(self, control: Control | None = None) -> None:
        self.control = control or Control()  # the last one that can be read; Control() without an object
        self.readable, self.damaged = True, ""
        self.faults = InjectedFaults()
        self._version, self._exists = 0, control is not None
        self._deleted: Control | None = None

    def read(self) -> Control:
        """See ControlPort."""
        seen = self.stamped()
        if seen.malformed:
            raise malformed(seen.malformed)
        return seen.control

    def damage(self, words: str) -> None:
        """Overwrite the content with one that cannot be read, as a person or a program can."""
        self.control = self.control if self._exists else self._deleted or NEVER_READABLE
        self.damaged, self._exists, self._version = words, True, self._version + 1

    def delete(self) -> None:
        """Delete the object, as a person can. The bucket keeps its versions."""
        self._deleted, self.control, self.damaged, self._exists = self.control, Control(), "", False

    def last_readable(self) -> Control | None:
        """See ControlPort."""
        self._admit("ListObjectVersions")
        return self.control if self._exists else self._deleted

    def scale(self, scaling: Scaling, by: str) -> Control:
        """See ControlPort."""
        before = self.control
        self._store(replace(before, scaling=scaling, by=by))
        return before

    def stamped(self) -> Stamped:
        """See ControlPort."""
        self._admit("GetObject")
        if self.damaged:
            return Stamped(control=Control(scaling=Scaling.STOP), etag=self._etag, malformed=self.damaged)
        return Stamped(control=self.control, etag=self._etag)

    def write(self, control: Control, etag: str | None) -> str | None:
        """See ControlPort."""
        try:
            self._admit("PutObject")
        except CloudError as error:
            if error.code in ("ConditionalRequestConflict", "PreconditionFailed"):
                return None
            raise
        if etag != self._etag:
            return None
        self._store(control)
        if self.faults.loses("PutObject"):
            raise CloudError(Fault.LOST, "ConnectionClosed", "the reply was lost, as the scenario asked")
        return self._etag

    @property
    def _etag(self) -> str | None:
        return f'"{self._version}"' if self._exists else None

    def _store(self, control: Control) -> None:
        self.control, self._version, self.damaged = control, self._version + 1, ""
        self._exists = True

    def _admit(self, action: str) -> None:
        if not self.readable:
            raise CloudError(Fault.LOST, "RequestTimeout", "the control object cannot be read")
        try:
            self.faults.raise_next(action)
        except Refusal as refusal:
            raise cloud_error(refusal.code, refusal.message, status=refusal.status) from refusal


class ModelNotices:
    """The NoticePort over the events of the state; it never waits. `unreadable` counts dropped messages."""

    def __init__(self, model: CloudModel, clock: Callable[[], float]) -> None:
        self.unreadable = 0
        self._model, self._clock = model, clock

    def receive(self, wait_s: float) -> tuple[QueueNotice, ...]:
        """See NoticePort."""
        del wait_s
        notices: list[QueueNotice] = []
        for handle, body in self._model.events.receive(self._clock()):
            found = eventbridge.read(body, handle)
            notices += found.notices
            self.unreadable += found.unreadable
            if not found.notices:
                self._model.events.delete((handle,))
        return tuple(notices)

    def forget(self, handles: Sequence[str]) -> None:
        """See NoticePort."""
        self._model.events.delete(handles)


def view(instance: Ec2Instance) -> Instance:
    """An instance of the state as the port lists it."""
    return Instance(
        id=instance.id,
        state=instance.state,
        zone=instance.zone,
        machine=instance.spec.machine,
        market=_market(instance),
        address=instance.address,
        launched_at=instance.launched_at,
        token=instance.spec.token,
        reason=instance.reason or None,
        reservation=instance.reservation_id,
        tags=dict(instance.tags),
    )


def _market(instance: Ec2Instance) -> Market:
    """The market as EC2 reports it: an instance in a reservation has the reservation's, however it was launched."""
    if instance.spec.market in (Market.SPOT, Market.CAPACITY_BLOCK):
        return instance.spec.market
    return Market.ON_DEMAND if instance.reservation_id is None else Market.RESERVATION


def _fingerprint(call: LaunchCall | FleetCall) -> str:
    return repr(replace(call, tags=dict(sorted(call.tags.items()))))
