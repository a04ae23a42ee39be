"""One model of the cloud for every stand-in: capacity, tokens, buckets, life cycle. Pure; time is passed in."""

from gpucluster.cloud.model.ec2 import CloudModel
from gpucluster.cloud.model.port import ModelCloud, ModelControl, ModelNotices
from gpucluster.cloud.model.values import (
    Ec2Instance,
    Fleet,
    FleetSpec,
    Interface,
    Lag,
    LaunchSpec,
    MaintenanceEvent,
    Nic,
    Refusal,
    SubnetPlace,
    Timing,
)

__all__ = [
    "CloudModel",
    "Ec2Instance",
    "Fleet",
    "FleetSpec",
    "Interface",
    "Lag",
    "LaunchSpec",
    "MaintenanceEvent",
    "ModelCloud",
    "ModelControl",
    "ModelNotices",
    "Nic",
    "Refusal",
    "SubnetPlace",
    "Timing",
]
