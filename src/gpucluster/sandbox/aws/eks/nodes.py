"""The instances of node groups: EKS launches what is missing, replaces what is old, and ends them with their group.

On AWS an Auto Scaling group does it, with a copy of the launch template; here the instances name the template itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gpucluster.cloud.port import InstanceState
from gpucluster.sandbox.aws.ec2 import launch
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, Refusal
from gpucluster.sandbox.aws.eks.state import Eks, Issue, NodeGroup
from gpucluster.sandbox.aws.moto_state import Moto

CLUSTER_TAG, GROUP_TAG = "eks:cluster-name", "eks:nodegroup-name"
LAUNCH = "AsgInstanceLaunchFailures"
_AGAIN = frozenset({"RequestLimitExceeded"})  # Auto Scaling tries again by itself


class Nodes:
    """Keeps the number of nodes of each group. The caller holds the lock of the state."""

    def __init__(self, model: CloudModel, moto: Moto) -> None:
        self._model, self._moto = model, moto
        self._eks: Eks = model.eks

    def state(self, group: NodeGroup, now: float) -> str:
        """The state of a node group as EKS names it."""
        if group.life.ends_at is not None:
            return "DELETING"
        if group.failed:
            return "CREATE_FAILED"
        updating = group.before is not None
        if now < group.life.settles_at or updating:
            return "UPDATING" if group.life.updating or updating else "CREATING"
        running = [i for i in self.living(group, now) if i.state is InstanceState.RUNNING]
        if len(running) >= group.wanted:
            return "ACTIVE"
        return "DEGRADED" if group.was_whole else "CREATING"

    def living(self, group: NodeGroup, now: float) -> list[Ec2Instance]:
        """The instances of a group that start or run, by id."""
        return sorted((i for i in self._model.wanted(now) if _of(i, group)), key=lambda i: i.id)

    def step(self, now: float) -> None:
        """Bring each group one step nearer to what it asks for."""
        self._eks.advance(now)
        for key in sorted(self._eks.groups):
            group = self._eks.groups[key]
            after = self._ended(group, now) if group.life.ends_at is not None else self._kept(group, now)
            if after is None:
                del self._eks.groups[key]
                self._moto.drop_profile(group.profile)
            elif after is not group:
                self._eks.groups[key] = after

    def _ended(self, group: NodeGroup, now: float) -> NodeGroup | None:
        """End the instances; None when all have ended and the time of the deletion is over."""
        living = self.living(group, now)
        if living:
            self._model.terminate([i.id for i in living], now)
        ending = [i for i in self._model.ending(now) if _of(i, group)]
        return group if living or ending or now < (group.life.ends_at or 0.0) else None

    def _kept(self, group: NodeGroup, now: float) -> NodeGroup:
        if group.failed or not self._eks.planes.ready(group.cluster):
            return group
        if group.issues and not group.was_whole and group.before is None and group.issues[0].code != LAUNCH:
            return group if now < group.life.settles_at else replace(group, failed=True)
        living = self.living(group, now)
        new = [i for i in living if self._is_new(i, group)]
        old = [i for i in living if i not in new]
        try:
            self._correct(group, new, old, now)
        except Refusal as refusal:
            return group if refusal.code in _AGAIN else self._refused(group, refusal, now)
        running = [i for i in new if i.state is InstanceState.RUNNING]
        if len(running) < group.wanted or old:
            return replace(group, issues=()) if group.issues else group
        if group.was_whole and group.before is None and not group.issues:
            return group
        return replace(group, was_whole=True, before=None, issues=())

    def _correct(
        self, group: NodeGroup, new: Sequence[Ec2Instance], old: Sequence[Ec2Instance], now: float
    ) -> None:
        """Launch before anything old ends, or with the strategy MINIMAL end a node first, as on AWS."""
        options = group.options["updateConfig"]
        step, minimal = int(options.get("maxUnavailable") or 1), options.get("updateStrategy") == "MINIMAL"
        surge = 0 if minimal else min(len(old), step)
        room = group.wanted + surge - len(new) - len(old)
        for _ in range(min(room, group.wanted - len(new))):
            self._launch(group, self.living(group, now), now)
        running = sum(i.state is InstanceState.RUNNING for i in new)
        spare = len(new) + len(old) - group.wanted
        if old and minimal:
            fewer = spare + step if running == len(new) else 0
            self._model.terminate([i.id for i in old[:fewer]], now)
        elif old and running:
            self._model.terminate([i.id for i in old[: min(spare, running)]], now)
        elif not old and spare > 0:
            self._model.terminate([i.id for i in new[-spare:]], now)

    def _refused(self, group: NodeGroup, refusal: Refusal, now: float) -> NodeGroup:
        issue = Issue(
            code=LAUNCH,
            message=f"Could not launch {_WORDS[str(group.options['capacityType'])]} Instances. {refusal.code} - "
            f"{refusal.message} Launching EC2 instance failed.",
        )
        if group.before is not None and now >= group.life.settles_at:
            return self._rolled_back(group, issue, now)
        failed = not group.was_whole and now >= group.life.settles_at
        return replace(group, issues=(issue,), failed=failed)

    def _rolled_back(self, group: NodeGroup, issue: Issue, now: float) -> NodeGroup:
        """Keep the nodes that there are: the update has failed."""
        image, options = group.before or (group.image, group.options)
        part = f"nodegroup/{group.name}"
        for update in [u for u in self._eks.updates.values() if (u.cluster, u.part) == (group.cluster, part)]:
            if update.created_at == max(u.created_at for u in self._eks.updates.values() if u.part == part):
                self._eks.updates[update.id] = replace(update, ends_at=now, fault=("NodeCreationFailure", issue.message))  # fmt: skip
        return replace(group, image=image, options=options, before=None)

    def _is_new(self, instance: Ec2Instance, group: NodeGroup) -> bool:
        wanted = group.options.get("launchTemplate")
        version = None if wanted is None else self._version(wanted)
        has = None if instance.spec.template is None else instance.spec.template[1]
        return instance.spec.image == group.image and has == version

    def _version(self, wanted: Mapping[str, str]) -> int:
        return self._moto.template(wanted["id"], None, wanted["version"]).version

    def _launch(self, group: NodeGroup, there: Sequence[Ec2Instance], now: float) -> None:
        last: Refusal | None = None
        for asked, subnet in self._attempts(group, there):
            spec, _ = launch.launch_spec(asked, self._moto, fleet_subnet=subnet)
            try:
                self._model.run(replace(spec, token=None), now)
            except Refusal as refusal:
                last = refusal
            else:
                return
        if last is not None:
            raise last

    def _attempts(
        self, group: NodeGroup, there: Sequence[Ec2Instance]
    ) -> Iterator[tuple[dict[str, Any], str]]:
        """Every machine of the group in every subnet, the emptiest subnet first."""
        options = group.options
        tags = {
            CLUSTER_TAG: group.cluster,
            GROUP_TAG: group.name,
            f"kubernetes.io/cluster/{group.cluster}": "owned",
        }
        asked: dict[str, Any] = {
            "ImageId": group.image,
            "MinCount": 1,
            "MaxCount": 1,
            "IamInstanceProfile": {"Name": group.profile},
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
            ],
        }
        named: Mapping[str, str] | None = options.get("launchTemplate")
        if named is not None:
            asked["LaunchTemplate"] = {"LaunchTemplateId": named["id"], "Version": named["version"]}
        if options["capacityType"] == "SPOT":
            asked["InstanceMarketOptions"] = {"MarketType": "spot"}
        held = [i.spec.subnet.id for i in there]
        subnets = sorted(options["subnets"], key=lambda one: (held.count(one), one))
        for machine in options["instanceTypes"] or [None]:
            for subnet in subnets:
                yield ({**asked, "InstanceType": machine} if machine else dict(asked)), subnet


_WORDS = {"ON_DEMAND": "On-Demand", "SPOT": "Spot", "CAPACITY_BLOCK": "Capacity Block"}


def _of(instance: Ec2Instance, group: NodeGroup) -> bool:
    with suppress(KeyError):
        return (instance.tags[CLUSTER_TAG], instance.tags[GROUP_TAG]) == (group.cluster, group.name)
    return False
