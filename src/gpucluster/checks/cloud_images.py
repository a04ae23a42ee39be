"""Check that a node could be launched: the image of each launch template is the plan's, and EC2 launches it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckResult, Location, Query, QueryOutput
from gpucluster.checks.cloud import CloudDifference, judged
from gpucluster.checks.cloud_machines import NodeTemplate
from gpucluster.text import short

_LAUNCHES = "available"
_BUILD = "gpucluster image build, with the options of its last build (docs/aws.md), then pulumi up --stack {cluster}"
_WRITE = "write an image that exists in `aws.image`, then pulumi up --stack {cluster}"
_ENABLE = "aws ec2 enable-image --image-id {id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagesWant:
    """The launch templates of the plan, with their images."""

    cluster: str
    templates: tuple[NodeTemplate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that EC2 lists; the name is that of `RegisterImage`."""

    id: str
    name: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundImages:
    """The image ids of launch templates by id and version, and the images by id."""

    templates: Mapping[tuple[str, int], str]
    images: Mapping[str, Image]


def query_images(want: ImagesWant) -> tuple[Query, ...]:
    words = (f"template={one.id}:{one.version}" for one in want.templates)
    return (Query(at=Location.CLOUD, argv=("launch-images", *words)),)


def parse_images(got: tuple[QueryOutput, ...]) -> FoundImages:
    body = json_fields.table(got[0].text())
    templates = {
        (
            json_fields.text(one, "LaunchTemplateId"),
            int(json_fields.number(one, "VersionNumber")),
        ): json_fields.text(one, "LaunchTemplateData", "ImageId")
        for one in json_fields.members(body, "LaunchTemplateVersions")
    }
    images = (
        Image(
            id=json_fields.text(one, "ImageId"),
            name=json_fields.text(one, "Name"),
            state=json_fields.text(one, "State"),
        )
        for one in json_fields.members(body, "Images")
    )
    return FoundImages(templates=templates, images={one.id: one for one in images})


def evaluate_images(found: FoundImages, want: ImagesWant) -> CheckResult:
    """A launch template that is gone is `cloud.templates`' fault. One sentence for each image, with the pools that it stops."""
    pools: dict[tuple[str, str], set[str]] = {}
    for one in want.templates:
        if (identifier := found.templates.get((one.id, one.version))) is not None:
            pools.setdefault((identifier, one.image), set()).add(one.pool)
    faults = [
        fault
        for (identifier, wanted), names in sorted(pools.items())
        for fault in _faults(identifier, wanted, ", ".join(sorted(names)), found.images.get(identifier))
    ]
    good = f"{len({identifier for identifier, _ in pools})} images"
    return judged(faults, want.cluster, good, "the plan's image in each launch template, and EC2 launches it")


def _faults(identifier: str, wanted: str, pools: str, image: Image | None) -> Iterator[CloudDifference]:
    by_id = wanted.startswith("ami-")
    again = _WRITE if by_id else _BUILD
    shown = identifier if by_id else f"{wanted} ({short(identifier, 30)})"
    if image is None:
        words = (
            f"the image {shown} of the launch templates of {pools} does not exist: no node can be launched"
        )
        yield CloudDifference(words=words, step=again)
    elif image.state != _LAUNCHES:
        words = f"the image {shown} of {pools} is {short(image.state, 20)}: no node can be launched"
        yield CloudDifference(
            words=words, step=_ENABLE.format(id=image.id) if image.state == "disabled" else again
        )
    elif wanted not in (image.id, image.name):
        words = f"the launch templates of {pools} have the image {short(image.name, 60)} ({image.id}), not {wanted}"
        yield CloudDifference(words=words, step="pulumi up --stack {cluster}")
