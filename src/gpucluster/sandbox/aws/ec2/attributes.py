"""Attributes and instance profiles: what a provider reads in addition to DescribeInstances and changes later."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from gpucluster.cloud.port import InstanceState
from gpucluster.sandbox.aws.ec2 import filters, views
from gpucluster.sandbox.aws.ec2.call import Calls, Ec2Call, Result
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, Refusal
from gpucluster.sandbox.aws.iam.policies import Need
from gpucluster.sandbox.aws.moto_state import Moto

_ASSOCIATION = "iip-assoc-"
_NEEDS_STOP = frozenset({"user_data", "machine"})


def calls(model: CloudModel, moto: Moto) -> Calls:
    """Calls of this module by operation name."""
    here = _Attributes(model, moto)
    return {
        "DescribeInstanceAttribute": here.describe,
        "ModifyInstanceAttribute": here.modify,
        "ModifyInstanceMetadataOptions": here.modify_metadata,
        "DescribeIamInstanceProfileAssociations": here.associations,
        "AssociateIamInstanceProfile": here.associate,
        "DisassociateIamInstanceProfile": here.disassociate,
    }


class _Attributes:
    def __init__(self, model: CloudModel, moto: Moto) -> None:
        self._model, self._moto = model, moto

    def describe(self, call: Ec2Call) -> Result:
        instance = self._model.instance(str(call.asked.get("InstanceId")), call.now)
        name = str(call.asked.get("Attribute"))
        values = _values(instance)
        if name not in values:
            raise Refusal("InvalidParameterValue", f"the sandbox has no attribute {name!r} of an instance")
        return {"InstanceId": instance.id, **values[name]}

    def modify(self, call: Ec2Call) -> Result:
        unknown = sorted(call.asked.keys() - _CHANGES.keys() - {"InstanceId", "DryRun"})
        if unknown:
            raise Refusal("UnsupportedOperation", f"the sandbox cannot modify {unknown[0]} of an instance")
        changes: dict[str, Any] = {}
        for name, (field, read) in _CHANGES.items():
            if name in call.asked:
                changes[field] = read(call.asked[name])
        self._change(call, str(call.asked.get("InstanceId")), changes)
        return {}

    def modify_metadata(self, call: Ec2Call) -> Result:
        wanted = {k: str(v) for k, v in call.asked.items() if k not in ("InstanceId", "DryRun")}
        before = self._model.instance(str(call.asked.get("InstanceId")), call.now)
        after = self._change(call, before.id, {"metadata": {**before.spec.metadata, **wanted}})
        return {"InstanceId": after.id, "InstanceMetadataOptions": views.metadata(after)}

    def associations(self, call: Ec2Call) -> Result:
        found = [i for i in self._model.describe((), call.now) if i.spec.profile and i.address]
        readers = {"instance-id": filters.INSTANCE["instance-id"]}
        fitting = filters.chosen(found, call.asked.get("Filters"), readers, lambda i: i.tags)
        wanted = cast(Sequence[str], call.asked.get("AssociationIds") or ())
        shown = [i for i in fitting if not wanted or _association_id(i) in wanted]
        return {"IamInstanceProfileAssociations": [self._association(i) for i in shown]}

    def associate(self, call: Ec2Call) -> Result:
        asked = cast(Mapping[str, str], call.asked.get("IamInstanceProfile") or {})
        profile = self._moto.profile(asked.get("Name"), asked.get("Arn"))
        passed = {"iam:passedtoservice": ("ec2.amazonaws.com",)}
        role = self._moto.role_arn(profile.role or "")
        call.allow([Need(action="iam:PassRole", resource=role, context=passed)])
        before = self._model.instance(str(call.asked.get("InstanceId")), call.now)
        if before.spec.profile is not None:
            raise Refusal("IncorrectState", f"There is an existing association for instance {before.id}")
        after = self._change(call, before.id, {"profile": profile.arn})
        return {"IamInstanceProfileAssociation": self._association(after)}

    def disassociate(self, call: Ec2Call) -> Result:
        wanted = str(call.asked.get("AssociationId"))
        found = [
            i for i in self._model.describe((), call.now) if i.spec.profile and _association_id(i) == wanted
        ]
        if not found:
            raise Refusal("InvalidAssociationID.NotFound", f"The association ID '{wanted}' does not exist")
        gone = self._association(found[0])
        self._change(call, found[0].id, {"profile": None})
        return {"IamInstanceProfileAssociation": {**gone, "State": "disassociating"}}

    def _association(self, instance: Ec2Instance) -> Result:
        arn = instance.spec.profile or ""
        return {
            "AssociationId": _association_id(instance),
            "InstanceId": instance.id,
            "IamInstanceProfile": {"Arn": arn, "Id": self._moto.profile_id(arn)},
            "State": "associated",
        }

    def _change(self, call: Ec2Call, instance_id: str, changes: Mapping[str, Any]) -> Ec2Instance:
        def edit(instance: Ec2Instance) -> Ec2Instance:
            if _NEEDS_STOP & changes.keys() and instance.state is not InstanceState.STOPPED:
                raise Refusal(
                    "IncorrectInstanceState", f"The instance '{instance.id}' is not in the 'stopped' state."
                )
            return replace(instance, spec=replace(instance.spec, **changes))

        return self._model.change(instance_id, call.now, edit)


def _values(instance: Ec2Instance) -> dict[str, Result]:
    spec = instance.spec
    user_data = {"Value": base64.b64encode(spec.user_data).decode()} if spec.user_data else {}
    return {
        "userData": {"UserData": user_data},
        "disableApiTermination": {"DisableApiTermination": {"Value": spec.protected}},
        "disableApiStop": {"DisableApiStop": {"Value": False}},
        "instanceInitiatedShutdownBehavior": {
            "InstanceInitiatedShutdownBehavior": {"Value": spec.on_shutdown}
        },
        "instanceType": {"InstanceType": {"Value": spec.machine}},
        "sourceDestCheck": {"SourceDestCheck": {"Value": True}},
        "ebsOptimized": {"EbsOptimized": {"Value": bool(spec.options.get("EbsOptimized", False))}},
        "groupSet": {"Groups": [{"GroupId": g} for g in spec.groups]},
        "rootDeviceName": {"RootDeviceName": {"Value": views.ROOT_DEVICE}},
    }


def _text(value: Any) -> str:
    return str(value["Value"])


def _flag(value: Any) -> bool:
    return _text(value).lower() == "true"


def _blob(value: Any) -> bytes:
    content = value.get("Value", b"")
    return content if isinstance(content, bytes) else base64.b64decode(str(content))


# attribute -> (the field of InstanceLaunch, the request's member)
_CHANGES: Mapping[str, tuple[str, Any]] = {
    "DisableApiTermination": ("protected", _flag),
    "InstanceInitiatedShutdownBehavior": ("on_shutdown", _text),
    "InstanceType": ("machine", _text),
    "UserData": ("user_data", _blob),
    "Groups": ("groups", tuple),
}


def _association_id(instance: Ec2Instance) -> str:
    return _ASSOCIATION + instance.id.removeprefix("i-")
