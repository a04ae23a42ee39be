"""CloudPort and ControlPort over the model: what tests of the elastic daemon speak to.

Refuse, throttle and lose replies by the model's own switches (`model.set_capacity`, `model.faults`); every
call is written to `calls`. Nothing here waits: time is what the given clock says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gpucluster.cloud import eventbridge
from gpucluster.cloud.faults import cloud_error
from gpucluster.cloud.model.ec2 import CloudModel
from gpucluster.cloud.model.faultbox import FaultBox
from gpucluster.cloud.model.values import Ec2Instance, FleetSpec, LaunchSpec, Nic, Refusal, SubnetPlace
from gpucluster.cloud.port import (
    CloudError,
    Control,
    Fault,
    FleetAnswer,
    FleetError,
    FleetOverride,
    FleetRequest,
    Instance,
    LaunchRequest,
    Reservation,
    Scaling,
    Stamped,
    Told,
)
from gpucluster.plan import names
from gpucluster.plan.model import Market

T = TypeVar("T")
_PROFILE = "arn:aws:iam::123456789012:instance-profile/node"


class ModelCloud:
    """The CloudPort. `subnets` are zone by subnet id; one that is not given is made up in the request's zone."""

    def __init__(
        self, model: CloudModel, clock: Callable[[], float], subnets: Mapping[str, str] | None = None
    ) -> None:
        self.model = model
        self.calls: list[tuple[str, object]] = []
        self._clock = clock
        self._strict = subnets is not None
        self._places: dict[str, SubnetPlace] = {}
        for subnet_id, zone in sorted((subnets or {}).items()):
            self._add(subnet_id, zone)

    @property
    def launches(self) -> list[LaunchRequest]:
        """The launch requests so far, in order, refused ones included."""
        return [argument for _, argument in self.calls if isinstance(argument, LaunchRequest)]

    def launch(self, request: LaunchRequest) -> tuple[str, ...]:
        """As the port says."""
        self.calls.append(("launch", request))
        return self._call("RunInstances", lambda now: self._run(request, now))

    def fleet(self, request: FleetRequest) -> FleetAnswer:
        """As the port says."""
        self.calls.append(("fleet", request))
        return self._call("CreateFleet", lambda now: self._fleet(request, now))

    def instances(self, cluster: str) -> tuple[Instance, ...]:
        """As the port says."""
        self.calls.append(("instances", cluster))
        found = self._call("DescribeInstances", lambda now: self.model.describe((), now))
        wanted = {names.TAG_CLUSTER: cluster, names.TAG_ROLE: names.ROLE_NODE}
        return tuple(view(i) for i in found if wanted.items() <= i.tags.items())

    def reservations(self, ids: Sequence[str]) -> tuple[Reservation, ...]:
        """As the port says."""
        self.calls.append(("reservations", tuple(ids)))
        if not ids:
            return ()
        return self._call("DescribeCapacityReservations", lambda now: self.model.reservations(ids, now))

    def terminate(self, ids: Sequence[str]) -> None:
        """As the port says: an unknown id is what was asked for already."""
        self.calls.append(("terminate", tuple(ids)))
        if not ids:
            return
        try:
            self._terminate(ids)
        except CloudError as error:
            if error.fault is not Fault.GONE:
                raise
            for one in ids if len(ids) > 1 else ():  # the unknown one spared them all
                self.terminate((one,))

    def _terminate(self, ids: Sequence[str]) -> None:
        self._call("TerminateInstances", lambda now: self.model.terminate(ids, now))

    def _run(self, request: LaunchRequest, now: float) -> tuple[str, ...]:
        spec = LaunchSpec(
            machine=request.machine,
            market=request.market,
            subnet=self._place(request.subnet_id, request.zone),
            min_count=request.count if request.at_least is None else request.at_least,
            max_count=request.count,
            token=request.token,
            fingerprint=_fingerprint(request),
            profile=_PROFILE,
            template=(request.template_id, request.template_version),
            tags=dict(request.tags),
            on_shutdown="terminate",
            reservation=request.reservation,
            max_price=request.max_price,
            placement_group=request.placement_group,
            nics=tuple(Nic(card=i.card, device=i.device, kind=i.kind) for i in request.interfaces[1:]),
        )
        return tuple(i.id for i in self.model.run(spec, now))

    def _fleet(self, request: FleetRequest, now: float) -> FleetAnswer:
        asked = FleetSpec(
            id=self.model.fresh_id("fleet"),
            overrides=tuple(self._override(request, o) for o in request.overrides),
            count=request.count,
            least=request.count if request.at_least is None else request.at_least,
            token=request.token,
            fingerprint=_fingerprint(request),
        )
        made = self.model.fleet(asked, now)
        machines = [override.machine for override in request.overrides]
        return FleetAnswer(
            instances=tuple((i, machines[position]) for i, position in made.instances),
            errors=tuple(
                FleetError(machine=machines[position], code=code, message=text)
                for position, code, text in made.errors
            ),
        )

    def _override(self, request: FleetRequest, override: FleetOverride) -> LaunchSpec:
        return LaunchSpec(
            machine=override.machine,
            market=request.market,
            subnet=self._place(request.subnet_id, request.zone),
            min_count=1,
            max_count=request.count,
            token=None,
            fingerprint="",
            profile=_PROFILE,
            template=(override.template_id, override.template_version),
            tags=dict(request.tags),
            on_shutdown="terminate",
            max_price=request.max_price,
            placement_group=request.placement_group,
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

    def _place(self, subnet_id: str, zone: str) -> SubnetPlace:
        if subnet_id not in self._places and self._strict:
            raise cloud_error("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
        return self._places.get(subnet_id) or self._add(subnet_id, zone)

    def _add(self, subnet_id: str, zone: str) -> SubnetPlace:
        cidr = f"10.{64 + len(self._places)}.0.0/16"
        place = self._places[subnet_id] = SubnetPlace(id=subnet_id, zone=zone, cidr=cidr)
        return place


class ModelControl:
    """The ControlPort in memory; `readable = False` makes all of it fail as a bucket can.

    `faults` refuses by S3's words: `next_error("PutObject", "ConditionalRequestConflict")`, `lose_reply("PutObject")`.
    """

    def __init__(self, control: Control | None = None) -> None:
        self.control = control or Control()
        self.readable = True
        self.faults = FaultBox()
        self._version: int | None = None if control is None else 0

    def read(self) -> Control:
        """As the port says."""
        return self.stamped().control

    def stop(self, by: str) -> None:
        """As the port says."""
        self._store(replace(self.control, scaling=Scaling.STOP, by=by))

    def stamped(self) -> Stamped:
        """As the port says."""
        self._admit("GetObject")
        return Stamped(control=self.control, etag=self._etag)

    def write(self, control: Control, etag: str | None) -> str | None:
        """As the port says."""
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
        return None if self._version is None else f'"{self._version}"'

    def _store(self, control: Control) -> None:
        self.control, self._version = control, (self._version or 0) + 1

    def _admit(self, action: str) -> None:
        if not self.readable:
            raise CloudError(Fault.LOST, "RequestTimeout", "the control object cannot be read")
        try:
            self.faults.raise_next(action)
        except Refusal as refusal:
            raise cloud_error(refusal.code, refusal.message, status=refusal.status) from refusal


class ModelNotices:
    """The NoticePort over the model's news; it never waits. `unreadable` counts what was dropped."""

    def __init__(self, model: CloudModel, clock: Callable[[], float]) -> None:
        self.unreadable = 0
        self._model, self._clock = model, clock

    def receive(self, wait_s: float) -> tuple[Told, ...]:
        """As the port says."""
        del wait_s
        told: list[Told] = []
        for handle, body in self._model.news.receive(self._clock()):
            found = eventbridge.read(body, handle)
            told += found.told
            self.unreadable += found.unreadable
            if not found.told:
                self._model.news.delete((handle,))
        return tuple(told)

    def forget(self, handles: Sequence[str]) -> None:
        """As the port says."""
        self._model.news.delete(handles)


def view(instance: Ec2Instance) -> Instance:
    """An instance of the model as the port lists it."""
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
        reservation=instance.held,
        tags=dict(instance.tags),
    )


def _market(instance: Ec2Instance) -> Market:
    """As EC2 tells it: what is in a reservation is that, however it came there."""
    if instance.spec.market in (Market.SPOT, Market.CAPACITY_BLOCK):
        return instance.spec.market
    return Market.ON_DEMAND if instance.held is None else Market.RESERVATION


def _fingerprint(request: LaunchRequest | FleetRequest) -> str:
    return repr(replace(request, tags=dict(sorted(request.tags.items()))))
