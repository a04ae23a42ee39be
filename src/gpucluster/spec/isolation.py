"""How Slurm keeps jobs apart on one node: their /tmp, /var/tmp and /dev/shm, and who may log in to the node."""

from typing import Annotated, Any

from pydantic import BeforeValidator, GetJsonSchemaHandler, WithJsonSchema, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gpucluster.plan.model.values import Containers
from gpucluster.spec.fields import AbsolutePath, Flag, UpdateClass, parse_text, refuse, spec_field
from gpucluster.spec.host_fields import UserName
from gpucluster.spec.part import Part
from gpucluster.text import quoted

CONTAINERS = tuple(one.value for one in Containers)


def parse_containers(value: object) -> str:
    """Parse the name of a container runtime."""
    text = parse_text(value)
    if text not in CONTAINERS:
        message = f"{quoted(text)} is not a container runtime for jobs; one of {', '.join(CONTAINERS)}"
        raise refuse("bad-containers", message)
    return text


ContainersField = Annotated[
    str, BeforeValidator(parse_containers), WithJsonSchema({"enum": list(CONTAINERS)})
]


class Software(Part):
    """Software on shared storage, for login shells on login machines and nodes."""

    modules: AbsolutePath | None = spec_field(
        UpdateClass.NEW_NODES,
        "Folder with module files, on a mount that all machines share. `module` is Lmod.",
        default=None,
    )
    conda: AbsolutePath | None = spec_field(
        UpdateClass.NEW_NODES,
        "An installation of Conda, on a mount that all machines share. `conda` works if its folder has etc/profile.d/conda.sh.",
        default=None,
    )


class _Switch(Part):
    """A part that may also be written as `true` or `false`."""

    enabled: Flag

    instead = "true, false or "

    @model_validator(mode="before")
    @classmethod
    def _from_flag(cls, value: Any) -> Any:
        return {"enabled": value} if isinstance(value, bool) else value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        whole = {"type": "boolean", "description": "On or off, with the defaults."}
        return {"anyOf": [whole, handler.resolve_ref_schema(handler(schema))], "title": cls.__name__}


class PrivateTmp(_Switch):
    """Each job's own /tmp, /var/tmp and /dev/shm. Slurm removes them with the job, also a file of `sbatch --output=/tmp/...`."""

    enabled: Flag = spec_field(
        UpdateClass.STOP_FLEET, "`false`: all jobs of a node share /tmp, /var/tmp and /dev/shm.", default=True
    )
    path: AbsolutePath | None = spec_field(
        UpdateClass.STOP_FLEET,
        "Folder on the node that holds the /tmp of each job; for a mount of `nvme`, a folder of root in it. Slurm sets no limit on its size: the file system is the limit.",
        default=None,
    )


class NodeSsh(_Switch):
    """ssh to compute nodes: only with a running job there. The session joins the job, and ends with it."""

    enabled: Flag = spec_field(
        UpdateClass.NEW_NODES,
        "`false`: on AWS no sshd runs on nodes; on hosts PAM stays as the site has set it.",
        default=True,
    )
    operators: tuple[UserName, ...] = spec_field(
        UpdateClass.NEW_NODES,
        "Accounts that log in without a job, besides root and `hosts.ssh.user`.",
        default=(),
        min_length=1,
    )
