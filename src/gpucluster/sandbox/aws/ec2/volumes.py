"""The calls on EBS volumes: volumes that outlive instances, and root volumes of living instances."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from gpucluster.sandbox.aws.ec2 import filters, views
from gpucluster.sandbox.aws.ec2.call import Calls, Ec2Call, Result, creation_tags
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.ec2.state.volumes import Volume
from gpucluster.sandbox.aws.kms import keys
from gpucluster.sandbox.aws.moto_state import EBS_KEY, Moto

_KINDS = frozenset({"gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"})
_SIZES = (1, 65536)  # limit of a gp3 volume in GiB


def calls(model: CloudModel, moto: Moto) -> Calls:
    """Calls of this module by operation name."""
    here = _Volumes(model, moto)
    return {
        "CreateVolume": here.create,
        "DescribeVolumes": here.describe,
        "AttachVolume": here.attach,
        "DetachVolume": here.detach,
        "ModifyVolume": here.modify,
        "DescribeVolumesModifications": here.modifications,
        "DeleteVolume": here.delete,
        "GetEbsDefaultKmsKeyId": here.default_key,
        "ModifyEbsDefaultKmsKeyId": here.change_default_key,
        "ResetEbsDefaultKmsKeyId": here.reset_default_key,
    }


class _Volumes:
    def __init__(self, model: CloudModel, moto: Moto) -> None:
        self._model, self._moto = model, moto
        self._modified: dict[str, Result] = {}

    def create(self, call: Ec2Call) -> Result:
        asked = call.asked
        zone, kind = str(asked.get("AvailabilityZone") or ""), str(asked.get("VolumeType") or "gp2")
        if asked.get("SnapshotId"):
            raise Refusal("UnsupportedOperation", "the sandbox has no snapshots")
        if zone not in self._moto.zones():
            raise Refusal("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
        if kind not in _KINDS:
            raise Refusal("InvalidParameterValue", f"Invalid volume type: {kind}")
        volume = Volume(
            id=self._model.fresh_id("vol"),
            zone=zone,
            size_gib=_size(asked.get("Size")),
            created_at=call.now,
            kind=kind,
            iops=int(asked.get("Iops") or 3000),
            throughput=int(asked.get("Throughput") or 125),
            encrypted=str(asked.get("Encrypted", "")).lower() == "true",
            kms_key=asked.get("KmsKeyId"),
            tags=creation_tags(call, "volume"),
            failed=self._key_fails(call),
        )
        with self._model.lock:
            return _created(self._model.volumes.put(volume))

    def _key_fails(self, call: Ec2Call) -> bool:
        key = keys.volume_key(self._moto, call.asked.get("Encrypted"), call.asked.get("KmsKeyId"))
        return key is not None and keys.refused(call, key, self._model, self._moto) is not None

    def describe(self, call: Ec2Call) -> Result:
        wanted = cast(Sequence[str], call.asked.get("VolumeIds") or ())
        with self._model.lock:
            roots = [i for i in self._model.describe((), call.now) if i.address is not None]
            own = self._model.volumes.all()
        missing = sorted(set(wanted) - {i.volume_id for i in roots} - {v.id for v in own})
        if missing:
            raise Refusal("InvalidVolume.NotFound", f"The volume '{missing[0]}' does not exist.")
        asked = call.asked.get("Filters")
        fitting = filters.chosen(
            [i for i in roots if not wanted or i.volume_id in wanted],
            [f for f in asked or () if f.get("Name") in filters.VOLUME or _is_tag(f)],
            filters.VOLUME,
            lambda i: i.spec.volume_tags,
        )
        if any(f.get("Name") in filters.OWN_VOLUME.keys() - filters.VOLUME.keys() for f in asked or ()):
            fitting = []
        mine = filters.chosen(
            [v for v in own if not wanted or v.id in wanted], asked, filters.OWN_VOLUME, lambda v: v.tags
        )
        return {"Volumes": [*(views.own_volume(v) for v in mine), *(views.volume(i) for i in fitting)]}

    def attach(self, call: Ec2Call) -> Result:
        volume, device = str(call.asked.get("VolumeId")), str(call.asked.get("Device") or "")
        if not device:
            raise Refusal("MissingParameter", "The request must contain the parameter device")
        with self._model.lock:
            instance = self._model.instance(str(call.asked.get("InstanceId")), call.now)
            return views.volume_attachment(
                self._model.volumes.attach(volume, instance, device, call.now), "attaching"
            )

    def detach(self, call: Ec2Call) -> Result:
        with self._model.lock:
            self._model.describe((), call.now)
            before = self._model.volumes.detach(str(call.asked.get("VolumeId")), call.asked.get("InstanceId"))
        return views.volume_attachment(before, "detaching")

    def modify(self, call: Ec2Call) -> Result:
        """A volume, or the root volume of a living instance."""
        volume = str(call.asked.get("VolumeId"))
        with self._model.lock:
            own = volume in self._model.volumes
            size, kind = self._modify_own(call, volume) if own else self._modify_root(call, volume)
        done = {
            "VolumeId": volume,
            "ModificationState": "completed",
            "Progress": 100,
            "TargetSize": size,
            "TargetVolumeType": kind,
        }
        self._modified[volume] = done
        return {"VolumeModification": done}

    def modifications(self, call: Ec2Call) -> Result:
        wanted = cast(Sequence[str], call.asked.get("VolumeIds") or ())
        found = [m for v, m in sorted(self._modified.items()) if not wanted or v in wanted]
        return {"VolumesModifications": found}

    def delete(self, call: Ec2Call) -> Result:
        with self._model.lock:
            self._model.describe((), call.now)
            self._model.volumes.remove(str(call.asked.get("VolumeId")))
        return {}

    def default_key(self, _: Ec2Call) -> Result:
        return {"KmsKeyId": self._moto.ebs_key}

    def change_default_key(self, call: Ec2Call) -> Result:
        self._moto.ebs_key = str(call.asked.get("KmsKeyId"))
        return {"KmsKeyId": self._moto.ebs_key}

    def reset_default_key(self, _: Ec2Call) -> Result:
        self._moto.ebs_key = EBS_KEY
        return {"KmsKeyId": EBS_KEY}

    def _modify_own(self, call: Ec2Call, volume_id: str) -> tuple[int, str]:
        before = self._model.volumes.get(volume_id)
        size = _grown(call.asked, before.size_gib)
        after = replace(
            before,
            size_gib=size,
            kind=str(call.asked.get("VolumeType") or before.kind),
            iops=int(call.asked.get("Iops") or before.iops),
            throughput=int(call.asked.get("Throughput") or before.throughput),
        )
        self._model.volumes.put(after)
        return after.size_gib, after.kind

    def _modify_root(self, call: Ec2Call, volume_id: str) -> tuple[int, str]:
        mine = next(
            (i for i in self._model.describe((), call.now) if i.address and i.volume_id == volume_id), None
        )
        if mine is None:
            raise Refusal("InvalidVolume.NotFound", f"The volume '{volume_id}' does not exist.")
        before = views.volume(mine)
        size = _grown(call.asked, int(before["Size"]))
        kind = str(call.asked.get("VolumeType") or before["VolumeType"])
        options = views.with_root_ebs(mine, {"VolumeSize": size, "VolumeType": kind})
        self._model.change(mine.id, call.now, lambda i: replace(i, spec=replace(i.spec, options=options)))
        return size, kind


def _size(value: Any) -> int:
    size = int(value or 0)
    if not _SIZES[0] <= size <= _SIZES[1]:
        raise Refusal(
            "InvalidParameterValue", f"Invalid value '{size}' for size: {_SIZES[0]} to {_SIZES[1]} GiB"
        )
    return size


def _grown(asked: Mapping[str, Any], before: int) -> int:
    size = int(asked.get("Size") or before)
    if size < before:
        raise Refusal("InvalidParameterValue", "New size cannot be smaller than existing size")
    return size


def _created(volume: Volume) -> Result:
    shape = views.own_volume(volume)
    return {**{k: v for k, v in shape.items() if k != "Attachments"}, "State": "creating"}


def _is_tag(one: Mapping[str, Any]) -> bool:
    return str(one.get("Name", "")).startswith("tag:")
