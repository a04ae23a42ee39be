"""The EC2 calls that the sandbox answers itself, in one table. Instances exist only in `state`; moto answers the rest.

A call that would create or change an instance in moto is refused by name, so that instances exist in one place only.
"""

import base64
import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from gpucluster.cloud.port import InstanceState
from gpucluster.sandbox.aws import protocols
from gpucluster.sandbox.aws.ec2 import (
    attributes,
    filters,
    fleets,
    gateways,
    images,
    launch,
    participants,
    placement,
    requests,
    reserved,
    spot_prices,
    views,
    volumes,
)
from gpucluster.sandbox.aws.ec2.call import Calls, Ec2Call, Result, check_tags, dry_run
from gpucluster.sandbox.aws.ec2.guards import GUARDS
from gpucluster.sandbox.aws.ec2.rights import Ec2Rights, tags_in
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, Refusal
from gpucluster.sandbox.aws.ec2.wiring import WIRING
from gpucluster.sandbox.aws.kms import keys
from gpucluster.sandbox.aws.moto_state import Moto, Profile

# calls that moto would answer with instances of its own
NOT_HERE = frozenset(
    {"AllocateHosts", "AttachNetworkInterface", "CopySnapshot", "CreateSnapshot",
     "DescribeFleetInstances", "DescribeFleets", "DescribeSpotFleetInstances", "ImportInstance",
     "MonitorInstances", "RebootInstances", "ReplaceIamInstanceProfileAssociation",
     "RequestSpotFleet",
     "RequestSpotInstances", "RunScheduledInstances", "UnmonitorInstances"}
)  # fmt: skip

# calls whose pages follow the switches of scenarios (T22)
_PAGED = frozenset(
    {
        "DescribeCapacityReservations",
        "DescribeInstances",
        "DescribeInstanceStatus",
        "DescribeInstanceTopology",
    }
)


class Ec2Calls:
    """`answer` returns the result of a call of the sandbox, or None for a call of moto."""

    def __init__(
        self, model: CloudModel, moto: Moto, rights: Ec2Rights, console: Callable[[str], bytes]
    ) -> None:
        self._model, self._moto, self._rights, self._console = model, moto, rights, console
        self._own: Calls = {
            "RunInstances": self._run,
            "DescribeInstances": self._describe,
            "DescribeInstanceStatus": self._status,
            **attributes.calls(model, moto),
            **fleets.calls(model, moto, rights),
            **reserved.calls(model, moto),
            **images.calls(model, moto),
            **placement.calls(model),
            **volumes.calls(model, moto),
            **gateways.calls(model, moto),
            **spot_prices.calls(model),
            "DescribeSubnets": self._subnets,
            "DescribeRouteTables": self._route_tables,
            "ModifyInstanceEventStartTime": self._move_event,
            "TerminateInstances": lambda c: _changes("TerminatingInstances", model.terminate(_ids(c), c.now)),
            "StopInstances": lambda c: _changes("StoppingInstances", model.stop(_ids(c), c.now)),
            "StartInstances": lambda c: _changes("StartingInstances", model.start(_ids(c), c.now)),
            "DescribeNetworkInterfaces": self._interfaces,
            "DescribeTags": self._tags,
            "CreateTags": lambda c: self._tag(c, tags_in(c.asked.get("Tags", ())), ()),
            "DeleteTags": lambda c: self._tag(c, {}, [str(t["Key"]) for t in c.asked.get("Tags", ())]),
            "GetConsoleOutput": self._console_output,
        }

    def answer(self, call: Ec2Call) -> Result | None:
        """The result in EC2's form, None for a call of moto, or a Refusal."""
        if call.operation in NOT_HERE:
            raise Refusal("UnsupportedOperation", f"the sandbox has no {call.operation}")
        requests.check(call)
        participants.check(call.operation, call.asked, self._moto)
        own = self._own.get(call.operation)
        if own is not None:
            result = own(call)
            whole = call.operation not in _PAGED and requests.wants_page(call)
            return requests.page(call, result, self._model.draw()) if whole else result
        if any(str(v).startswith("i-") for v in _named_instances(call.asked)):
            raise Refusal("UnsupportedOperation", f"the sandbox has no {call.operation} for instances")
        wired = WIRING.get(call.operation)
        if wired is not None:
            wired(call.asked, self._moto)
        guard = GUARDS.get(call.operation)
        if guard is not None:
            guard(call.asked, self._moto, self._model.interfaces(call.now))
        if call.operation == "CreateRoute" and call.asked.get("NatGatewayId"):
            self._model.gateways.get(str(call.asked["NatGatewayId"]))
        if requests.wants_page(call):
            return requests.page(call, self._whole(call), self._model.draw())
        return None

    def _whole(self, call: Ec2Call) -> Result:
        """moto's list without pages."""
        answer = call.forward({k: v for k, v in call.fields.items() if k not in ("MaxResults", "NextToken")})
        if answer.status != 200:
            raise _passed_on(answer)
        return protocols.ec2_result(call.operation, answer.body)

    def settle(self, now: float) -> None:
        """Give moto's new interfaces addresses of their subnets."""
        for interface, place in self._moto.strays():
            self._moto.move(interface, self._model.free_address(place, now))

    # --- launching ------------------------------------------------------------------------------

    def _run(self, call: Ec2Call) -> Result:
        spec, profile = launch.launch_spec(call.asked, self._moto, self._model.switches)
        role_arn = None if profile is None or profile.role is None else self._moto.role_arn(profile.role)
        participants.check_launch(spec, self._moto)
        call.allow(self._rights.launch(spec, role_arn, launch.requested_tags(spec)))
        launch.need_spot_role(call, self._model, self._rights, spec)
        if call.dry:
            raise dry_run()
        made = list(self._model.run(spec, call.now))
        keys.end_refused(call, made, self._model, self._moto)
        return views.reservation(made, self._moto.groups(), _ids_by_arn(profile))

    # --- reading --------------------------------------------------------------------------------

    def _route_tables(self, call: Ec2Call) -> Result:
        """moto's tables; a route whose NAT gateway or internet gateway is gone is a `blackhole` (API reference, Route)."""
        whole = self._whole(call)
        attached = self._moto.gateway_vpcs()
        for route in (one for table in whole.get("RouteTables", ()) for one in table.get("Routes", ())):
            target = str(route.get("NatGatewayId") or route.get("GatewayId") or "")
            lost = target.startswith("igw-") and not attached.get(target)
            if lost or (target.startswith("nat-") and not self._model.gateways.serves(target, call.now)):
                route["State"] = "blackhole"
        return whole

    def _describe(self, call: Ec2Call) -> Result:
        shown, token = self._page(call)
        by_launch: dict[str, list[Ec2Instance]] = {}
        for instance in shown:
            by_launch.setdefault(instance.reservation, []).append(instance)
        groups, profiles = self._moto.groups(), self._profiles(shown)
        result: Result = {
            "Reservations": [views.reservation(i, groups, profiles) for i in by_launch.values()]
        }
        return result if token is None else {**result, "NextToken": token}

    def _status(self, call: Ec2Call) -> Result:
        everything = str(call.asked.get("IncludeAllInstances", "")).lower() == "true"
        shown, token = self._page(call)
        found = [i for i in shown if everything or i.state is InstanceState.RUNNING]
        result: Result = {"InstanceStatuses": [views.status(i) for i in found]}
        return result if token is None else {**result, "NextToken": token}

    def _move_event(self, call: Ec2Call) -> Result:
        to = call.asked.get("NotBefore")
        if not isinstance(to, datetime.datetime):
            raise Refusal("InvalidParameterValue", "NotBefore is not a time")
        aware = to if to.tzinfo else to.replace(tzinfo=datetime.UTC)
        wanted = str(call.asked.get("InstanceEventId"))
        _, event = self._model.move_event(wanted, aware.timestamp(), call.now)
        return {"Event": views.event(event)}

    def _page(self, call: Ec2Call) -> tuple[list[Ec2Instance], str | None]:
        ids = _ids(call)
        if ids and call.asked.get("MaxResults") is not None:
            raise Refusal(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            )
        found = self._model.describe(ids, call.now)
        fitting = filters.chosen(found, call.asked.get("Filters"), filters.INSTANCE, views.instance_tags)
        forced = None if ids else self._model.switches.page_size
        return filters.page(fitting, lambda i: i.id, call.asked, self._model.draw(), forced)

    def _subnets(self, call: Ec2Call) -> Result:
        """moto's subnets with the real number of free addresses (T10)."""
        found = self._asked_of_moto(call, "Subnets", call.fields)
        for subnet in found:
            place = self._moto.subnet(str(subnet["SubnetId"]))
            subnet["AvailableIpAddressCount"] = self._model.free_count(place, call.now)
        return {"Subnets": found}

    def _interfaces(self, call: Ec2Call) -> Result:
        mine = self._model.interfaces(call.now)
        wanted = cast(Sequence[str], call.asked.get("NetworkInterfaceIds") or ())
        named = [e for e in mine if not wanted or e.id in wanted]
        fitting = filters.chosen(named, call.asked.get("Filters"), filters.INTERFACE, lambda e: e.tags)
        rest = [e for e in wanted if e not in {m.id for m in mine}]
        others = self._of_moto(call, "NetworkInterfaces", "NetworkInterfaceId", wanted, rest)
        groups = self._moto.groups()
        return {"NetworkInterfaces": [*others, *(views.interface(e, groups) for e in fitting)]}

    def _of_moto(
        self, call: Ec2Call, member: str, field: str, wanted: Sequence[str], rest: Sequence[str]
    ) -> list[Result]:
        """moto's part of a list; by id only for ids that are not stored here."""
        if wanted and not rest:
            return []
        kept = {k: v for k, v in call.fields.items() if not k.startswith(f"{field}.")}
        kept |= {f"{field}.{n}": one for n, one in enumerate(rest, 1)}
        return self._asked_of_moto(call, member, kept)

    def _asked_of_moto(self, call: Ec2Call, member: str, fields: Mapping[str, str]) -> list[Result]:
        answer = call.forward(fields)
        if answer.status != 200:
            raise _passed_on(answer)
        return cast(list[Result], protocols.ec2_result(call.operation, answer.body).get(member, []))

    # --- tags -----------------------------------------------------------------------------------

    def _tags(self, call: Ec2Call) -> Result:
        mine = views.tags(self._model.describe((), call.now), self._model.interfaces(call.now))
        mine += views.holding_tags(self._model.holdings())
        fitting = filters.chosen(
            mine, call.asked.get("Filters"), filters.TAG, lambda t: {t["Key"]: t["Value"]}
        )
        return {"Tags": [*self._asked_of_moto(call, "Tags", call.fields), *fitting]}

    def _tag(self, call: Ec2Call, tags: Mapping[str, str], gone: Sequence[str]) -> Result:
        check_tags({**tags, **dict.fromkeys(gone, "")})
        resources = cast(Sequence[str], call.asked.get("Resources") or ())
        known = {i.volume_id for i in self._model.describe((), call.now)}
        known |= {e.id for e in self._model.interfaces(call.now)}
        mine = [r for r in resources if r.startswith("i-") or r in known]
        self._model.tag(mine, tags, gone, call.now)
        others = [r for r in resources if r not in mine and self._model.tags_of(r) is not None]
        for one in others:
            self._model.tag_holding(one, tags, gone)
        rest = [r for r in resources if r not in mine and r not in others]
        if rest:
            fields = {k: v for k, v in call.fields.items() if not k.startswith("ResourceId.")}
            fields |= {f"ResourceId.{n}": one for n, one in enumerate(rest, 1)}
            answer = call.forward(fields)
            if answer.status != 200:
                raise _passed_on(answer)
        return {}

    def _console_output(self, call: Ec2Call) -> Result:
        instance = self._model.instance(str(call.asked.get("InstanceId")), call.now)
        text = self._console(instance.id)[-64 * 1024 :]  # EC2 keeps the last 64 KB
        output = base64.b64encode(text).decode()
        return {"InstanceId": instance.id, "Output": output, "Timestamp": views.when(call.now)}

    def _profiles(self, instances: Iterable[Ec2Instance]) -> dict[str, str]:
        arns = {i.spec.profile for i in instances if i.spec.profile is not None}
        return {arn: self._moto.profile_id(arn) for arn in arns}


def _ids(call: Ec2Call) -> Sequence[str]:
    return cast(Sequence[str], call.asked.get("InstanceIds") or ())


def _named_instances(asked: Mapping[str, Any]) -> list[Any]:
    ids = asked.get("InstanceIds") or asked.get("InstanceId") or ()
    return [ids] if isinstance(ids, str) else list(ids)


def _ids_by_arn(profile: Profile | None) -> dict[str, str]:
    return {} if profile is None else {profile.arn: profile.id}


def _changes(member: str, changes: Iterable[tuple[Ec2Instance, Ec2Instance]]) -> Result:
    return {
        member: [
            {"InstanceId": a.id, "CurrentState": views.state(a.state), "PreviousState": views.state(b.state)}
            for b, a in changes
        ]
    }


def _passed_on(answer: protocols.Answer) -> Refusal:
    text = answer.body.decode(errors="replace")
    code = re.search(r"<Code>(.*?)</Code>", text)
    message = re.search(r"<Message>(.*?)</Message>", text)
    return Refusal(code[1] if code else "InternalError", message[1] if message else "", status=answer.status)
