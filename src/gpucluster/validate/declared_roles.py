"""The roles of a cluster with the policies that the program declares; what only the cloud knows is unknown. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.checks.cloud_roles import RoleWant
from gpucluster.checks.policy_documents import UNKNOWN
from gpucluster.json_text import parse_json
from gpucluster.plan import names
from gpucluster.plan.iam_policies import (
    JobsScope,
    boot_script_arns,
    head_policy,
    head_scope,
    jobs_policy,
    node_policy,
    reader_scope,
    standby_policy,
    trust_ec2,
    trust_role,
)
from gpucluster.plan.model import Bindings, Efs, SlurmOnAws
from gpucluster.plan.mounts import heads_only


def declared_roles(plan: SlurmOnAws, bindings: Bindings) -> Iterator[RoleWant]:
    """Yield each role of machines, and that of jobs, as `aws/iam_roles.py` declares them."""
    account = _account(bindings)
    node_role = f"arn:aws:iam::{account}:role/{plan.name}-{names.ROLE_NODE}{UNKNOWN}"
    controller = head_scope(plan, {**_stores(plan, bindings, on_head=True), **_launch(plan, bindings), "node_role": node_role})  # fmt: skip
    reader: Mapping[str, Any] = {**_stores(plan, bindings, on_head=False), "jobs_role": ""}
    yield _of_ec2(plan, names.ROLE_HEAD, head_policy(controller))
    if plan.head.standby is not None:
        yield _of_ec2(plan, names.ROLE_STANDBY, standby_policy(controller))
    of_node = reader_scope(plan, {**reader, "jobs_role": bindings.jobs_role}, boot_script_arns(plan))
    yield _of_ec2(plan, names.ROLE_NODE, node_policy(of_node))
    if plan.login is not None:
        yield _of_ec2(plan, names.ROLE_LOGIN, node_policy(reader_scope(plan, reader, ())))
    jobs = plan.aws.jobs
    if jobs is not None:
        policy = jobs_policy(JobsScope(own_bucket=reader["bucket"], read=jobs.read, write=jobs.write))
        yield _role(plan, names.ROLE_JOBS, policy, trust_role(node_role))


def _of_ec2(plan: SlurmOnAws, role: str, policy: str) -> RoleWant:
    return _role(plan, role, policy, trust_ec2())


def _role(plan: SlurmOnAws, role: str, policy: str, trust: str) -> RoleWant:
    return RoleWant(name=f"{plan.name}-{role}", policy=parse_json(policy), trust=parse_json(trust))


def _account(bindings: Bindings) -> str:
    """The account of the cluster, from the ARN of its secret."""
    parts = bindings.secret.split(":")
    return parts[4] if len(parts) > 4 else UNKNOWN


def _stores(plan: SlurmOnAws, bindings: Bindings, *, on_head: bool) -> Mapping[str, Any]:
    """The ARNs of `aws.storage.Stores.arns`."""
    region, key = plan.aws.region, plan.aws.kms_key or ""
    away = None if on_head else heads_only(plan)
    own = [one.path for one in plan.storage if isinstance(one.source, Efs) and one.path != away]
    ids = [bindings.file_systems[path].id if path in bindings.file_systems else UNKNOWN for path in own]
    return {
        "bucket": f"arn:aws:s3:::{bindings.bucket}",
        "secret": bindings.secret,
        "key": key if not key or ":key/" in key else f"arn:aws:kms:{region}:{UNKNOWN}:key/{UNKNOWN}",
        "file_systems": [
            f"arn:aws:elasticfilesystem:{region}:{_account(bindings)}:file-system/{one}" for one in ids
        ],
    }


def _launch(plan: SlurmOnAws, bindings: Bindings) -> Mapping[str, Any]:
    """What a launch uses. A shared VPC belongs to another account (T50), and an image is known by its name alone."""
    ec2, account = f"arn:aws:ec2:{plan.aws.region}", _account(bindings)
    group = bindings.groups.get(names.ROLE_NODE, UNKNOWN)
    return {
        "account": account,
        "images": [f"ami-{UNKNOWN}"],
        "subnets": [f"{ec2}:{UNKNOWN}:subnet/{one}" for one in bindings.subnets.values()],
        "node_group": f"{ec2}:{UNKNOWN}:security-group/{group}",
        "queue": f"arn:aws:sqs:{plan.aws.region}:{account}:{bindings.queue.rpartition('/')[2] or UNKNOWN}",
    }
