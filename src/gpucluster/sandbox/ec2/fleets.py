"""CreateFleet of type `instant`: errors by override inside a 200, in a fleet's own words (T13, T14)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from gpucluster.cloud.model import CloudModel, Fleet, FleetSpec, LaunchSpec, Refusal
from gpucluster.sandbox.backends import Moto
from gpucluster.sandbox.ec2 import launch
from gpucluster.sandbox.ec2.call import Call, Calls, Result, dry_run
from gpucluster.sandbox.permissions import Permissions

_CONFIGS = 50  # launch template configs of one fleet
_LEAST = 1000  # MinTargetCapacity
_MINE = ("InstanceType", "SubnetId", "ImageId")  # of an override
_TAKEN = ("InstanceType", "ImageId", "Placement")  # the subnet is put apart
_ALIAS = "resolve:ssm:"  # an image by its parameter's name
Part = Mapping[str, Any]


def calls(model: CloudModel, moto: Moto, permissions: Permissions) -> Calls:
    """The calls of this module by name."""
    here = _Fleets(model, moto, permissions)
    return {"CreateFleet": here.create, "DeleteFleets": here.delete}


class _Fleets:
    def __init__(self, model: CloudModel, moto: Moto, permissions: Permissions) -> None:
        self._model, self._moto, self._permissions = model, moto, permissions

    def create(self, call: Call) -> Result:
        asked = call.asked
        _check(asked)
        target = _part(asked, "TargetCapacitySpecification")
        lifecycle = str(target.get("DefaultTargetCapacityType") or "on-demand")
        overrides = sorted(_overrides(asked), key=lambda o: float(o[1].get("Priority") or 0.0))
        count = int(target.get("TotalTargetCapacity") or 0)
        specs = tuple(self._spec(call, config, override, lifecycle, count) for config, override in overrides)
        whole = [s for s in specs if isinstance(s, LaunchSpec)]
        call.allow(self._permissions.fleet(whole, _fleet_tags(asked), launch.requested_tags))
        if call.dry:  # of what its overrides may not do, nothing is said (T14)
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
        return _answer(fleet, overrides, lifecycle)

    def delete(self, call: Call) -> Result:
        """An instant fleet takes its instances along, or is not deleted (T14)."""
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
        self, call: Call, config: Part, override: Part, lifecycle: str, count: int
    ) -> LaunchSpec | Refusal:
        try:
            spec, profile = launch.launch_spec(
                _as_launch(call.asked, config, override, lifecycle, count),
                self._moto,
                self._model.switches,
                override.get("SubnetId") or None,
            )
            role = None if profile is None or profile.role is None else self._moto.role_arn(profile.role)
            call.allow(self._permissions.launch(spec, role, launch.requested_tags(spec)))
            launch.need_spot_role(call, self._model, self._permissions, spec)
        except Refusal as refusal:
            if "for InstanceType" in refusal.message:
                return Refusal("InvalidFleetConfiguration", refusal.message)
            return refusal
        return spec


def _check(asked: Part) -> None:
    """What refuses the whole call."""
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
    """The override as a RunInstances; the fleet says the market, whatever the template does."""
    tags = [s for s in asked.get("TagSpecifications") or () if s.get("ResourceType") == "instance"]
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


def _least(asked: Part, specs: Iterable[LaunchSpec | Refusal], lifecycle: str) -> int:
    """MinTargetCapacity, which counts only for a fleet of one type or one zone."""
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
    zones = {s.subnet.zone for s in specs if isinstance(s, LaunchSpec)}
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
