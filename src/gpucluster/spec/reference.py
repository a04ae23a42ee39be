"""Generate docs/spec.md: every field with its type, default, update class and an example."""

import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.plan import defaults
from gpucluster.spec.decode import fields_of, without_none
from gpucluster.spec.jsonschema import fields_schema
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import Part
from gpucluster.spec.workloads import WorkloadsSpec
from gpucluster.text import format_duration

_HEAD = """\
# The spec, field by field

Made from the models in `src/gpucluster/spec` by `make golden`. Do not edit it by hand.

A cluster is one YAML file in `stacks/`. Workloads for Kubernetes are files in `workloads/`. `gpucluster check FILE`
reports every mistake with its line. `gpucluster plan FILE --explain` shows each default and its reason.

- **Units.** A duration is a number with `s`, `m`, `h` or `d`. A size has `MiB`, `GiB` or `TiB`. Money is `40 USD`, a
  price is `40 USD/h`, a share is `80%`.
- **Default.** `required`: the spec must have the field. `-`: nothing, unless the description says otherwise.
- **Change** is the update class, what a change of the field costs a running cluster: `none`; `live` touches no node;
  `new-nodes` affects only nodes that start later; `drain` waits until nodes are empty; `restart` restarts the
  controller or a machine; `stop-fleet` needs all nodes off; `replace` makes the part again; `data-loss` deletes data.
- A key that begins with `x-` at the top holds YAML anchors and is not read.
"""

# defaults that the plan decides, by path
_DECIDED: Mapping[str, str] = {
    "aws.image.os": defaults.IMAGE_OS,
    "aws.network.nat": defaults.NAT,
    "pools[].idle": format_duration(defaults.IDLE_S.value),
    "pools[].boot_timeout": format_duration(defaults.BOOT_TIMEOUT_S.value),
    "pools[].termination.signal": defaults.TERMINATION_SIGNAL,
    "pools[].termination.lead": format_duration(defaults.TERMINATION_LEAD_S.value),
    "pools[].termination.grace": format_duration(defaults.TERMINATION_GRACE_S.value),
    "pools[].breaker.boots": f"{defaults.BREAKER_BOOTS.value:g}",
    "pools[].breaker.cooldown": format_duration(defaults.BREAKER_COOLDOWN_S.value),
    "budget.warn_at": f"{defaults.BUDGET_WARN_PERCENT.value:g}%",
    "budget.stop_scaling_at": f"{defaults.BUDGET_STOP_PERCENT.value:g}%",
    "storage[].fsx_lustre.throughput": f"{defaults.LUSTRE_THROUGHPUT.value:g}MBps/TiB",
}

# Examples of fields that no file of `stacks/` or `workloads/` has.
_EXAMPLES: Mapping[str, str] = {
    "kubernetes.system.machine": "m7i.xlarge",
    "aws.kms_key": "alias/research",
    "aws.boundary": "arn:aws:iam::111122223333:policy/bound",
    "aws.image.ami": "ami-0123456789abcdef0",
    "aws.network.vpc": "vpc-0123456789abcdef0",
    "aws.network.subnets": "{us-east-2a: subnet-0123456789abcdef0}",
    "aws.network.public": "{us-east-2a: subnet-0123456789abcdef1}",
    "head.address": "10.42.0.10",
    "head.standby.address": "10.42.0.11",
    "pools[].capacity[].id": "cr-0123456789abcdef0",
    "pools[].on_boot[].script": "s3://example-site/boot.sh",
    "pools[].on_boot[].sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "pools[].image.ami": "ami-0123456789abcdef0",
    "storage[].efs.id": "fs-0123456789abcdef0",
    "storage[].fsx_lustre.id": "fs-0123456789abcdef0",
    "slurm.accounting.database": "local",
    "slurm.accounting.host": "db.example.org",
    "slurm.accounting.port": "3306",
    "slurm.accounting.secret": "arn:aws:secretsmanager:us-east-1:111122223333:secret:db-AbCdEf",
    "slurm.accounting.ca": "/etc/ssl/certs/db.pem",
    "slurm.accounting.keep": "730d",
    "slurm.preemption.by": "qos",
    "slurm.preemption.mode": "requeue",
    "slurm.preemption.exempt": "10m",
    "slurm.requeue": "true",
    "slurm.extra": "{KillWait: 60, SchedulerParameters: {bf_max_job_user: 50}}",
    "slurm.remove": "[MaxArraySize]",
    "pools[].features": "[ib, avx512]",
    "pools[].extra": "{MemSpecLimit: 4096}",
    "pools[].remove": "[Weight]",
    "partitions[].extra": "{GraceTime: 120, LLN: true}",
    "partitions[].remove": "[DefMemPerCPU]",
    "slurm.licenses": "{matlab: 10}",
    "slurm.reservations": "[{name: patch, pools: [gpu], start: 2026-12-01T08:00Z, duration: 4h, maint: true}]",
    "slurm.reservations[].name": "patch",
    "slurm.reservations[].pools": "[gpu]",
    "slurm.reservations[].nodes": '"gpu[01-04]"',
    "slurm.reservations[].repeat": "weekly",
    "slurm.reservations[].duration": "4h",
    "slurm.reservations[].users": "[vision]",
    "slurm.reservations[].accounts": "[research]",
    "slurm.reservations[].partition": "gpu",
    "slurm.reservations[].maint": "true",
    "partitions[].tier": "10",
    "partitions[].exclusive": "true",
    "partitions[].qos": "debug",
    "partitions[].accounts": "[research]",
    "partitions[].allow_qos": "[urgent]",
    "partitions[].topology": "nvl72",
    "slurm.topology.block": '{blocks: {rack1: "gb[01-18]"}, sizes: [18]}',
    "slurm.topology.block.blocks": '{rack1: "gb[01-18]"}',
    "slurm.topology.block.sizes": "[18, 36]",
    "slurm.topology.block.imex": "true",
    "slurm.topology.named.*.block.imex": "true",
    "slurm.topology.named": "{fabric: {flat: true, default: true}}",
    "slurm.topology.named.*.block": '{blocks: {rack1: "gb[01-18]"}}',
    "slurm.topology.named.*.block.blocks": '{rack1: "gb[01-18]"}',
    "slurm.topology.named.*.block.sizes": "[18, 36]",
    "slurm.topology.named.*.tree": '{spine: {leaf1: "gb[01-18]"}}',
    "qos[].name": "urgent",
    "qos[].priority": "1000",
    "qos[].preempts": "[normal]",
    "qos[].limits.gpus": "64",
    "qos[].limits.gpus_per_user": "16",
    "qos[].limits.cpus_per_user": "8",
    "qos[].limits.gpu_hours_per_month": "5000",
    "accounts[].name": "research",
    "accounts[].parent": "science",
    "accounts[].share": "3",
    "accounts[].qos": "[normal, urgent]",
    "accounts[].users": "[vision, speech]",
    "accounts[].limits.gpus": "64",
    "accounts[].limits.gpus_per_user": "16",
    "accounts[].limits.cpus_per_user": "8",
    "accounts[].limits.gpu_hours_per_month": "5000",
    "health.prolog": "false",
    "health.every": "10m",
    "health.at_most": "10%",
    "health.replace_per_hour": "2",
    "pools[].sharing.shards": "4",
    "pools[].sharing.mps": "100",
    "hosts.ssh.port": "2222",
    "login.sessions.memory": "8GiB",
    "login.sessions.tasks": "2000",
    "login.sessions.cpus": "2",
    "login.zone": "us-east-2a",
    "access.ssm": "true",
    "accept[].because": "the checkpoints are copied to S3",
    "head.standby.machine": "m7i.2xlarge",
    "head.standby.zone": "us-east-2b",
    "slurm.containers": "pyxis",
    "slurm.software.modules": "/apps/modulefiles",
    "slurm.software.conda": "/apps/conda",
    "slurm.node_ssh.enabled": "true",
    "slurm.node_ssh.operators": "[ops]",
    "slurm.private_tmp.enabled": "false",
    "slurm.private_tmp.path": "/local/tmp",
    "kubernetes.existing.context": "research-admin",
    "kubernetes.existing.eks_name": "research",
    "kubernetes.fair_sharing": "false",
    "kubernetes.monitoring": "prometheus-operator",
    "kubernetes.validation_image": "registry.example.org/agnhost:2.63.0",
    "kubernetes.trainer.image": "registry.example.org/train:2.0",
    "kubernetes.trainer.pull_secrets": "[registry]",
    "serve[].priority": "urgent",
    "nccl_test.team": "research",
    "nccl_test.image": "registry.example.org/train:2.0",
    "nccl_test.pull_secrets": "[registry]",
    "serve[].nodes": "2",
    "serve[].worker_command": "[python3, -m, chat.worker]",
    "serve[].shm": "8Gi",
    "serve[].service_account": "reader",
    "serve[].args": "[--port, 8000]",
    "train[].args": "[--epochs, 3]",
    "train[].kind": "TrainJob",
    "train[].topology.preferred": "rack",
}

_MAP = ".*"


@dataclass(frozen=True, slots=True)
class _Row:
    path: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Section:
    path: str
    text: str
    rows: tuple[_Row, ...]


def reference_text(clusters: Iterable[object], workloads: Iterable[object]) -> str:
    """Return the page. The arguments are parsed spec files, which have the examples."""
    parts = [_HEAD, "## A cluster: `stacks/NAME.yaml`\n"]
    parts += _page(ClusterSpec, fields_schema(ClusterSpec), _found(clusters))
    parts.append("## Workloads: `workloads/NAME.yaml`\n")
    parts += _page(WorkloadsSpec, fields_schema(WorkloadsSpec), _found(workloads))
    return "\n".join(parts)


def _page(model: type[Part], schema: Mapping[str, Any], examples: Mapping[str, str]) -> Iterator[str]:
    for section in _sections(model, "", schema, examples):
        if section.path:
            yield f"### `{section.path}`\n"
        yield f"{section.text}\n"
        if section.rows:
            yield "| key | type | default | change | meaning | example |\n|---|---|---|---|---|---|"
            yield "\n".join(f"| {' | '.join(row.cells)} |" for row in section.rows) + "\n"


def _sections(
    model: type[Part], at: str, schema: Mapping[str, Any], examples: Mapping[str, str]
) -> Iterator[_Section]:
    """Yield the part, then the parts below it, in the order of the fields."""
    rows, below = list[_Row](), list[tuple[type[Part], str]]()
    shapes = _object(schema if not at else schema["definitions"][model.__name__])["properties"]
    for key, field in fields_of(model).items():
        path = f"{at}.{key}" if at else key
        inner, suffix = _innermost(field.hint)
        if isinstance(inner, type) and issubclass(inner, Part):
            below.append((inner, path + suffix))
        rows.append(_Row(path, tuple(_cells(path, field.info, shapes[key], schema, examples))))
    yield _Section(at, (model.__doc__ or "").strip(), tuple(rows))
    for part, path in below:
        yield from _sections(part, path, schema, examples)


def _cells(
    path: str, info: Any, shape: Mapping[str, Any], schema: Mapping[str, Any], examples: Mapping[str, str]
) -> Iterator[str]:
    example = examples.get(path) or _EXAMPLES.get(path) or _of_shape(shape)
    yield f"`{path.rpartition('.')[2]}`"
    yield _type(shape, schema)
    yield _default(path, info)
    yield f"`{info.json_schema_extra['x-update-class']}`"
    yield str(info.description).replace("|", "\\|")
    yield f"`{example}`".replace("|", "\\|") if example else ""


def _default(path: str, info: Any) -> str:
    if info.is_required():
        return "required"
    if path in _DECIDED:
        return f"`{_DECIDED[path]}`"
    default = info.get_default(call_default_factory=True)
    return f"`{json.dumps(default)}`" if isinstance(default, bool | int | str) else "-"


def _type(shape: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "$ref" in shape or "allOf" in shape:
        name = (shape.get("$ref") or shape["allOf"][0]["$ref"]).rpartition("/")[2]
        short = schema["definitions"][name].get("anyOf", ({},))[0].get("type")
        return {"integer": "whole number or mapping", "boolean": "`true`, `false` or mapping"}.get(
            short, "mapping"
        )
    if "anyOf" in shape:
        return " or ".join(dict.fromkeys(_type(one, schema) for one in shape["anyOf"]))
    if shape.get("type") == "array":
        return f"list of {_type(shape['items'], schema)}"
    if shape.get("type") == "object":
        inside = shape["additionalProperties"]
        return f"mapping of names to {_type(inside, schema)}"
    return _leaf(shape)


def _leaf(shape: Mapping[str, Any]) -> str:
    if "const" in shape:
        return f"`{json.dumps(shape['const'])}`"
    if "enum" in shape:
        return "one of " + ", ".join(f"`{word}`" for word in shape["enum"])
    words = {"integer": _whole(shape), "boolean": "`true` or `false`"}
    return words.get(str(shape.get("type")), _text(shape))


def _whole(shape: Mapping[str, Any]) -> str:
    if "minimum" in shape and "maximum" in shape:
        return f"whole number, {shape['minimum']} to {shape['maximum']}"
    return "whole number"


def _text(shape: Mapping[str, Any]) -> str:
    pattern = str(shape.get("pattern", ""))
    for sign, word in (
        ("[smhd]", "duration"),
        ("MiB", "size"),
        ("USD/h", "price"),
        ("USD", "money"),
        ("%$", "share"),
    ):
        if sign in pattern:
            return word
    return "text"


def _of_shape(shape: Mapping[str, Any]) -> str:
    """Return the example of the JSON Schema."""
    if shape.get("type") == "boolean":
        return "true"
    if shape.get("type") == "array":
        inner = _of_shape(shape["items"])
        return f"[{inner}]" if inner else ""
    for key in ("examples", "enum"):
        if shape.get(key):
            return str(shape[key][0])
    return str(shape["minimum"]) if "minimum" in shape else ""


def _object(shape: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the mapping form of a part that also has a short form."""
    return next((one for one in shape.get("anyOf", ()) if "properties" in one), shape)


def _innermost(hint: Any) -> tuple[Any, str]:
    """Return the type inside lists and mappings, and the path steps to it."""
    inner, suffix = without_none(hint), ""
    while typing.get_origin(inner) in (tuple, Mapping):
        inside = typing.get_args(inner)
        many = typing.get_origin(inner) is tuple
        inner, suffix = (inside[0], f"{suffix}[]") if many else (inside[1], f"{suffix}{_MAP}")
    return inner, suffix


def _found(documents: Iterable[object]) -> Mapping[str, str]:
    """Return the first short value of each path in the documents, in YAML's flow style."""
    found: dict[str, str] = {}
    for document in documents:
        for path, value in _values(document, ""):
            text = _flow(value)
            if len(text) <= 48:
                found.setdefault(path, text)
    return found


def _values(value: object, at: str) -> Iterator[tuple[str, object]]:
    if at:
        yield at, value
    if isinstance(value, dict):
        for key, item in typing.cast("dict[str, object]", value).items():
            yield from _values(item, f"{at}.{key}" if at else key)
            if at:
                yield from _values(item, f"{at}{_MAP}")
    elif isinstance(value, list):
        for item in typing.cast("list[object]", value):
            yield from _values(item, f"{at}[]")


def _flow(value: object) -> str:
    if isinstance(value, dict):
        pairs = typing.cast("dict[str, object]", value).items()
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, typing.cast("list[object]", value))) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and (value[:1].isdigit() and value.replace(".", "").isdigit()):
        return f'"{value}"'
    return str(value)
