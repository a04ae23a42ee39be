"""Tags of instances and of their volumes and interfaces."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance

Edit = Callable[[Mapping[str, str]], dict[str, str]]


def edit(tags: Mapping[str, str], gone: Iterable[str]) -> Edit:
    """Return the change that adds `tags` and removes the keys `gone`."""
    keys = frozenset(gone)
    return lambda before: {k: v for k, v in before.items() if k not in keys} | dict(tags)


def on_volume(instance: Ec2Instance, change: Edit) -> Ec2Instance:
    """The instance with changed tags of its volume."""
    return replace(instance, spec=replace(instance.spec, volume_tags=change(instance.spec.volume_tags)))
