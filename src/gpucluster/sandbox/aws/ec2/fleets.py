"""CreateFleet of type `instant`: errors per override inside a 200 answer, with the codes of fleets (T13, T14)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from gpucluster.sandbox.aws.ec2 import launch, participants
from gpucluster.sandbox.aws.ec2.call import Calls, Ec2Call, Result, dry_run
from gpucluster.sandbox.aws.ec2.rights import Ec2Rights
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Fleet, FleetSpec, InstanceLaunch, Refusal
from gpucluster.sandbox.aws.kms import keys
from gpucluster.sandbox.aws.moto_state import Moto

_CONFIGS = 50  # launch template configs in one fleet
_LEAST = 1000  # limit of MinTargetCapacity
_MINE = ("InstanceType", "SubnetId", "ImageId")  # keys of an override
_TAKEN = ("InstanceType", "ImageId", "Placement")  # the subnet is handled apart
_LAUNCHED = ("instance", "volume")  # what a fleet's own tags can reach of its launches, as Karpenter uses it
_ALIAS = "resolve:ssm:"  # an image by the name of an SSM parameter
Part = Mapping[str, Any]


def calls(model: CloudModel, moto: Moto, rights: Ec2Rights) -> Calls:
    """Calls of this module by operation name."""
    here = _Fleets(model, moto, rights)
    return {"CreateFleet": here.create, "DeleteFleets": here.delete}


class _Fleets:
    def __init__(self, model: CloudModel, moto: Moto, rights: Ec2Rights) -> None:
        self._model, self._moto, self._rights = model, moto, rights

    def create(self, call: Ec2Call) -> Result:
        asked = call.asked
        _check(asked)
        target = _part(asked, "TargetCapacitySpecification")
        lifecycle = str(target.get("DefaultTargetCapacityType") or "on-demand")
        overrides = sorted(_overrides(asked), key=lambda o: float(o[1].get("Priority") or 0.0))
        count = int(target.get("TotalTargetCapacity") or 0)
        specs = tuple(self._spec(call, config, override, lifecycle, count) for config, override in overrides)
        whole = [s for s in specs if isinstance(s, InstanceLaunch)]
        call.allow(self._rights.fleet(whole, _fleet_tags(asked), launch.requested_tags))
        if call.dry:  # the rights of its overrides are not reported (T14)
            raise dry_run()
        fleet = self._model.fleet(
            FleetSpec(
                id=self._model.fresh_id("fleet"),
                overrides=specs,
                count=count,
                least=_least(asked, specs, lifecycle),
                token=asked.get("ClientToken") or None,
                fingerprint=_fingerprint(asked),
            ),
            call.now,
        )
        made = [self._model.instance(one, call.now) for one, _ in fleet.instances]
        keys.end_refused(call, made, self._model, self._moto)
        return _answer(fleet, overrides, lifecycle)

    def delete(self, call: Ec2Call) -> Result:
        """Delete an instant fleet together with its instances; without them it is refused (T14)."""
        ids = cast(Sequence[str], call.asked.get("FleetIds") or ())
        if str(call.asked.get("TerminateInstances", "")).lower() != "true":
            text = "NoTerminateInstances option is not supported for instant fleets."
            error = {"Code": "NoTerminateInstancesNotSupported", "Message": text}
            return {"UnsuccessfulFleetDeletions": [{"FleetId": i, "Error": error} for i in ids]}
        living = [i.id for i in self._model.wanted(call.now) if i.spec.fleet in ids]
        if living:
            self._model.terminate(living, call.now)
        done = {"CurrentFleetState": "deleted_terminating", "PreviousFleetState": "active"}
        return {"SuccessfulFleetDeletions": [{"FleetId": i, **done} for i in ids]}

    def _spec(
        self, call: Ec2Call, config: Part, override: Part, lifecycle: str, count: int
    ) -> InstanceLaunch | Refusal:
        try:
            spec, profile = launch.launch_spec(
                _as_launch(call.asked, config, override, lifecycle, count),
                self._moto,
                self._model.switches,
                override.get("SubnetId") or None,
            )
            role = None if profile is None or profile.role is None else self._moto.role_arn(profile.role)
            participants.check_launch(spec, self._moto)
            call.allow(self._rights.launch(spec, role, launch.requested_tags(spec)))
            launch.need_spot_role(call, self._model, self._rights, spec)
        except Refusal as refusal:
            if "for InstanceType" in refusal.message:
                return Refusal("InvalidFleetConfiguration", refusal.message)
            return refusal
        return spec


def _check(asked: Part) -> None:
    """The checks that refuse the whole call."""
    if asked.get("Type") != "instant":
        raise Refusal("UnsupportedOperation", "the sandbox has only fleets of type instant")
    configs = _configs(asked)
    if not 1 <= len(configs) <= _CONFIGS:
        raise Refusal("InvalidParameterValue", f"A fleet has 1 to {_CONFIGS} launch template configs.")
    for config in configs:
        if not _part(config, "LaunchTemplateSpecification").get("Version"):
            raise Refusal("MissingParameter", "The request must contain the parameter Version")
        if any(str(o.get("ImageId", "")).startswith(_ALIAS) for o in config.get("Overrides") or ()):
            raise Refusal("SsmAccessDenied", "You do not have permission to read the parameter of the image")


def _fleet_tags(asked: Part) -> dict[str, str]:
    mine = [s for s in asked.get("TagSpecifications") or () if s.get("ResourceType") == "fleet"]
    return {str(t["Key"]): str(t.get("Value") or "") for s in mine for t in s.get("Tags") or ()}


def _as_launch(asked: Part, config: Part, override: Part, lifecycle: str, count: int) -> dict[str, Any]:
    """The override as a RunInstances request; the fleet sets the market, whatever the template says."""
    tags = [s for s in asked.get("TagSpecifications") or () if s.get("ResourceType") in _LAUNCHED]
    market: dict[str, Any] = {}
    if lifecycle != "on-demand":
        price = override.get("MaxPrice")
        options = {"SpotOptions": {"MaxPrice": price}} if price is not None else {}
        market = {"MarketType": lifecycle, **options}
    return {
        **{name: override[name] for name in _TAKEN if override.get(name)},
        "LaunchTemplate": config["LaunchTemplateSpecification"],
        "InstanceMarketOptions": market,
        "TagSpecifications": tags,
        "MinCount": 1,
        "MaxCount": max(1, count),
    }


def _least(asked: Part, specs: Iterable[InstanceLaunch | Refusal], lifecycle: str) -> int:
    """MinTargetCapacity; it applies only to a fleet of one type or one zone."""
    options = _part(asked, "SpotOptions" if lifecycle == "spot" else "OnDemandOptions")
    least = int(options.get("MinTargetCapacity") or 0)
    if not least:
        return 0
    if least > _LEAST:
        raise Refusal("InvalidParameterValue", f"MinTargetCapacity is at most {_LEAST}.")
    single = any(
        str(options.get(name, "")).lower() == "true"
        for name in ("SingleInstanceType", "SingleAvailabilityZone")
    )
    if not single:
        return 0
    zones = {s.subnet.zone for s in specs if isinstance(s, InstanceLaunch)}
    if len(zones) > 1:
        raise Refusal("UnsupportedOperation", "the sandbox does not choose a single zone for a fleet")
    return least


def _answer(fleet: Fleet, overrides: Sequence[tuple[Part, Part]], lifecycle: str) -> Result:
    made: dict[int, list[str]] = {}
    for instance, position in fleet.instances:
        made.setdefault(position, []).append(instance)
    return {
        "FleetId": fleet.id,
        "Instances": [
            {
                "LaunchTemplateAndOverrides": _named(*overrides[position]),
                "Lifecycle": lifecycle,
                "InstanceIds": ids,
                "InstanceType": str(overrides[position][1].get("InstanceType", "")),
            }
            for position, ids in made.items()
        ],
        "Errors": [
            {
                "LaunchTemplateAndOverrides": _named(*overrides[position]),
                "Lifecycle": lifecycle,
                "ErrorCode": code,
                "ErrorMessage": text,
            }
            for position, code, text in fleet.errors
        ],
    }


def _named(config: Part, override: Part) -> Result:
    template = {k: str(v) for k, v in config["LaunchTemplateSpecification"].items()}
    place = {k: str(v) for k, v in override.items() if k in _MINE}
    return {"LaunchTemplateSpecification": template, "Overrides": place}


def _fingerprint(asked: Part) -> str:
    return json.dumps({k: v for k, v in asked.items() if k != "ClientToken"}, sort_keys=True, default=str)


def _overrides(asked: Part) -> list[tuple[Part, Part]]:
    return [(c, o) for c in _configs(asked) for o in cast(Sequence[Part], c.get("Overrides") or ({},))]


def _configs(asked: Part) -> Sequence[Part]:
    return cast(Sequence[Part], asked.get("LaunchTemplateConfigs") or ())


def _part(asked: Part, name: str) -> Part:
    return cast(Part, asked.get(name) or {})
