"""The calls on Elastic IP addresses and NAT gateways (T43)."""

from collections.abc import Sequence
from typing import cast

from gpucluster.sandbox.aws.ec2 import filters, views
from gpucluster.sandbox.aws.ec2.call import Calls, Ec2Call, Result, creation_tags
from gpucluster.sandbox.aws.ec2.state.gateways import Address, NatGateway
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto


def calls(model: CloudModel, moto: Moto) -> Calls:
    """Calls of this module by operation name."""
    here = _Gateways(model, moto)
    return {
        "AllocateAddress": here.allocate,
        "DescribeAddresses": here.addresses,
        "AssociateAddress": here.associate,
        "DisassociateAddress": here.disassociate,
        "ReleaseAddress": here.release,
        "CreateNatGateway": here.create,
        "DescribeNatGateways": here.gateways,
        "DeleteNatGateway": here.delete,
    }


class _Gateways:
    def __init__(self, model: CloudModel, moto: Moto) -> None:
        self._model, self._moto = model, moto

    def allocate(self, call: Ec2Call) -> Result:
        if call.asked.get("Address"):
            raise Refusal("UnsupportedOperation", "the sandbox chooses addresses itself")
        made = self._model.allocate(creation_tags(call, "elastic-ip"))
        return {
            "AllocationId": made.id,
            "PublicIp": made.public_ip,
            "Domain": "vpc",
            "PublicIpv4Pool": "amazon",
            "NetworkBorderGroup": self._model.region,
        }

    def addresses(self, call: Ec2Call) -> Result:
        ids = cast(Sequence[str], call.asked.get("AllocationIds") or ())
        ips = cast(Sequence[str], call.asked.get("PublicIps") or ())
        with self._model.lock:
            self._model.describe((), call.now)
            found = [self._model.addresses.get(i) for i in ids] or list(self._model.addresses.all())
        named = [a for a in found if not ips or a.public_ip in ips]
        missing = sorted(set(ips) - {a.public_ip for a in named})
        if missing:
            raise Refusal("InvalidAddress.NotFound", f"Address '{missing[0]}' not found.")
        fitting = filters.chosen(named, call.asked.get("Filters"), filters.ADDRESS, lambda a: a.tags)
        return {"Addresses": [_address(a, self._model.region) for a in fitting]}

    def associate(self, call: Ec2Call) -> Result:
        asked = call.asked
        if not asked.get("InstanceId") or not asked.get("AllocationId"):
            raise Refusal("UnsupportedOperation", "the sandbox binds allocated addresses to instances only")
        again = str(asked.get("AllowReassociation", "")).lower() == "true"
        made = self._model.associate(
            str(asked["AllocationId"]), str(asked["InstanceId"]), call.now, again=again
        )
        return {"AssociationId": made.association}

    def disassociate(self, call: Ec2Call) -> Result:
        with self._model.lock:
            self._model.disassociate(self._model.addresses.bound(str(call.asked.get("AssociationId"))))
        return {}

    def release(self, call: Ec2Call) -> Result:
        with self._model.lock:
            self._model.describe((), call.now)
            self._model.addresses.release(str(call.asked.get("AllocationId")))
        return {}

    def create(self, call: Ec2Call) -> Result:
        asked = call.asked
        public = str(asked.get("ConnectivityType") or "public") == "public"
        if public and not asked.get("AllocationId"):
            raise Refusal("MissingParameter", "The request must contain the parameter AllocationId")
        subnet = self._moto.subnet(str(asked.get("SubnetId")))
        if public and not self._moto.attached_gateways(subnet.vpc):
            raise Refusal(  # on AWS the gateway becomes `failed` a little later
                "Gateway.NotAttached", f"Network {subnet.vpc} has no Internet gateway attached"
            )
        made = self._model.make_gateway(
            subnet,
            str(asked["AllocationId"]) if public else None,
            asked.get("PrivateIpAddress"),
            creation_tags(call, "natgateway"),
            call.now,
        )
        self._moto.know_gateway(made.id, subnet.id)
        return {"NatGateway": _gateway(made, call.now), "ClientToken": asked.get("ClientToken")}

    def gateways(self, call: Ec2Call) -> Result:
        ids = cast(Sequence[str], call.asked.get("NatGatewayIds") or ())
        with self._model.lock:
            self._model.describe((), call.now)
            found = [self._model.gateways.get(i) for i in ids] or list(self._model.gateways.all())
        readers = filters.gateway(call.now)
        asked = call.asked.get("Filter") or call.asked.get("Filters")
        fitting = filters.chosen(found, asked, readers, lambda g: g.tags)
        return {"NatGateways": [_gateway(g, call.now) for g in fitting]}

    def delete(self, call: Ec2Call) -> Result:
        ended = self._model.end_gateway(str(call.asked.get("NatGatewayId")), call.now)
        return {"NatGatewayId": ended.id}


def _address(one: Address, region: str) -> Result:
    return {
        "AllocationId": one.id,
        "PublicIp": one.public_ip,
        "Domain": "vpc",
        "PublicIpv4Pool": "amazon",
        "NetworkBorderGroup": region,
        "AssociationId": one.association,
        "InstanceId": one.instance,
        "NetworkInterfaceId": one.interface,
        "NetworkInterfaceOwnerId": None if one.interface is None else ACCOUNT,
        "PrivateIpAddress": one.private_ip,
        "Tags": views.tag_list(one.tags),
    }


def _gateway(one: NatGateway, now: float) -> Result:
    address = {
        "AllocationId": one.allocation,
        "AssociationId": one.association,
        "IsPrimary": True,
        "NetworkInterfaceId": one.interface or None,
        "PrivateIp": one.private_ip,
        "PublicIp": one.public_ip,
        "Status": "succeeded",
    }
    shape: Result = {
        "NatGatewayId": one.id,
        "SubnetId": one.subnet.id,
        "VpcId": one.subnet.vpc,
        "State": one.state(now),
        "ConnectivityType": "public" if one.public else "private",
        "CreateTime": views.when(one.created_at),
        "NatGatewayAddresses": [address],
        "Tags": views.tag_list(one.tags),
    }
    if one.ends_at is not None and now >= one.ends_at:
        shape["DeleteTime"] = views.when(one.ends_at)
    return shape
