"""The calls on placement groups and DescribeInstanceTopology (T27, T28)."""

from collections.abc import Sequence
from typing import cast

from gpucluster.cloud.port import InstanceState
from gpucluster.sandbox.aws.ec2 import filters, views
from gpucluster.sandbox.aws.ec2.call import Calls, Ec2Call, Result, creation_tags
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.placement import PlacementGroup, layers_of, network_nodes
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.moto_state import ACCOUNT

_IDS = 100  # instances, or groups, in one DescribeInstanceTopology
_PAGE, _MOST = 20, 100
_LONGEST = 255  # characters of a group's name


def calls(model: CloudModel) -> Calls:
    """Calls of this module by operation name."""
    here = _Placement(model)
    return {
        "CreatePlacementGroup": here.create,
        "DescribePlacementGroups": here.describe,
        "DeletePlacementGroup": here.delete,
        "DescribeInstanceTopology": here.topology,
    }


class _Placement:
    def __init__(self, model: CloudModel) -> None:
        self._model = model

    def create(self, call: Ec2Call) -> Result:
        name = str(call.asked.get("GroupName") or "")
        if not name:
            raise Refusal("MissingParameter", "The request must contain the parameter groupName")
        if len(name) > _LONGEST or not name.isascii():
            raise Refusal("InvalidParameterValue", f"A group's name has at most {_LONGEST} ASCII characters.")
        strategy = str(call.asked.get("Strategy") or "cluster")
        if strategy != "cluster":
            raise Refusal(
                "UnsupportedOperation", f"the sandbox has no placement group of strategy {strategy}"
            )
        if call.asked.get("PartitionCount") is not None:
            raise Refusal("InvalidParameterCombination", "Partitions are of the strategy 'partition' alone.")
        tags = creation_tags(call, "placement-group")
        group = PlacementGroup(id=self._model.fresh_id("pg"), name=name, strategy=strategy, tags=tags)
        with self._model.lock:
            return {"PlacementGroup": _shape(self._model.placements.add(group), self._model.region)}

    def describe(self, call: Ec2Call) -> Result:
        names = cast(Sequence[str], call.asked.get("GroupNames") or ())
        ids = cast(Sequence[str], call.asked.get("GroupIds") or ())
        with self._model.lock:
            known = self._model.placements.all()
            found = [self._model.placements.get(name) for name in names] or list(known)
        missing = sorted(set(ids) - {g.id for g in known})
        if missing:
            raise Refusal(
                "InvalidPlacementGroupId.NotFound", f"The Placement Group '{missing[0]}' is unknown."
            )
        named = [g for g in found if not ids or g.id in ids]
        fitting = filters.chosen(named, call.asked.get("Filters"), filters.PLACEMENT, lambda g: g.tags)
        return {"PlacementGroups": [_shape(g, self._model.region) for g in fitting]}

    def delete(self, call: Ec2Call) -> Result:
        with self._model.lock:
            everything = self._model.describe((), call.now)
            self._model.placements.remove(str(call.asked.get("GroupName") or ""), everything)
        return {}

    def topology(self, call: Ec2Call) -> Result:
        """Running instances of types with a topology; others are omitted without an error (T28)."""
        ids = cast(Sequence[str], call.asked.get("InstanceIds") or ())
        if len(ids) > _IDS:
            raise Refusal("InvalidParameterValue", f"At most {_IDS} instance ids may be specified.")
        if ids and call.asked.get("MaxResults") is not None:
            raise Refusal("InvalidParameterCombination", "MaxResults cannot be specified with instance ids")
        names = cast(Sequence[str], call.asked.get("GroupNames") or ())
        if len(names) > _IDS:
            raise Refusal("InvalidParameterValue", f"At most {_IDS} placement group names may be specified.")
        for name in names:
            self._model.placements.get(name)
        seen = [
            i
            for i in self._model.describe(ids, call.now)
            if i.state is InstanceState.RUNNING
            and layers_of(i.spec.machine)
            and (not names or i.spec.placement_group in names)
        ]
        fitting = filters.chosen(seen, call.asked.get("Filters"), filters.TOPOLOGY, lambda _: {})
        asked = {"MaxResults": _PAGE, **call.asked} if not ids else {}
        shown, token = filters.page(fitting, lambda i: i.id, asked, self._model.draw(), bounds=(1, _MOST))
        result: Result = {
            "Instances": [
                {
                    "InstanceId": i.id,
                    "InstanceType": i.spec.machine,
                    "GroupName": i.spec.placement_group,
                    "NetworkNodes": list(network_nodes(i)),
                    "AvailabilityZone": i.zone,
                    "CapacityBlockId": i.reservation_id if i.spec.market.value == "capacity-block" else None,
                }
                for i in shown
            ]
        }
        return result if token is None else {**result, "NextToken": token}


def _shape(group: PlacementGroup, region: str) -> Result:
    return {
        "GroupName": group.name,
        "GroupId": group.id,
        "GroupArn": f"arn:aws:ec2:{region}:{ACCOUNT}:placement-group/{group.name}",
        "State": "available",
        "Strategy": group.strategy,
        "Tags": views.tag_list(group.tags),
    }
