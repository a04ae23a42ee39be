"""One model of the cloud for every stand-in: capacity, tokens, buckets, life cycle. Pure; time is passed in."""

from gpucluster.cloud.model.ec2 import CloudModel
from gpucluster.cloud.model.port import ModelCloud, ModelControl
from gpucluster.cloud.model.values import Ec2Instance, Interface, LaunchSpec, Refusal, SubnetPlace, Timing

__all__ = [
    "CloudModel",
    "Ec2Instance",
    "Interface",
    "LaunchSpec",
    "ModelCloud",
    "ModelControl",
    "Refusal",
    "SubnetPlace",
    "Timing",
]
