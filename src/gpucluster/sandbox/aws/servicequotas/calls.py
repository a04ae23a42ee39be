"""The calls of Service Quotas for vCPUs of EC2 (T09)."""

from collections.abc import Mapping
from typing import Any

from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.moto_state import ACCOUNT
from gpucluster.sandbox.aws.shapes import Calls, ServiceCall

Result = dict[str, Any]
_GENEROUS = 100_000.0  # the default quota: no plan reaches it

# code -> (name, bucket, spot); some codes are not verified
QUOTAS: Mapping[str, tuple[str, str, bool]] = {
    "L-1216C47A": ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", "Standard", False),
    "L-417A185B": ("Running On-Demand P instances", "P", False),
    "L-DB2E81BA": ("Running On-Demand G and VT instances", "G and VT", False),
    "L-34B43A08": ("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", "Standard", True),
    "L-7212CCBC": ("All P4, P3 and P2 Spot Instance Requests", "P", True),
    "L-C4BD4855": ("All P5 Spot Instance Requests", "P", True),
    "L-3819A6DF": ("All G and VT Spot Instance Requests", "G and VT", True),
}


def calls(model: CloudModel) -> Calls:
    """Calls of this module by operation name."""

    def every(call: ServiceCall) -> Result:
        return {"Quotas": [_quota(model, code) for code in QUOTAS] if _of_ec2(call) else []}

    def one(call: ServiceCall) -> Result:
        code = str(call.asked["QuotaCode"])
        if not _of_ec2(call) or code not in QUOTAS:
            raise Refusal(
                "NoSuchResourceException", f"There is no quota {code} of {call.asked['ServiceCode']}."
            )
        return {"Quota": _quota(model, code)}

    return {
        "ListServiceQuotas": every,
        "ListAWSDefaultServiceQuotas": every,
        "GetServiceQuota": one,
        "GetAWSDefaultServiceQuota": one,
    }


def _of_ec2(call: ServiceCall) -> bool:
    return call.asked["ServiceCode"] == "ec2"


def _quota(model: CloudModel, code: str) -> Result:
    name, bucket, spot = QUOTAS[code]
    limit = model.supply.quotas.limit(bucket, Market.SPOT if spot else Market.ON_DEMAND)
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{model.region}:{ACCOUNT}:ec2/{code}",
        "QuotaCode": code,
        "QuotaName": name,
        "Value": _GENEROUS if limit is None else float(limit),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
