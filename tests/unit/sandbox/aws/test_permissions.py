"""Least privilege: each action of each role has a reason, a scenario that passes with it, and one refusal without it.

This test generates `docs/permissions.md`: run it with `--update-golden`.
"""

import json
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from support import eks_permissions
from support.aws_plans import aws
from support.clouds import RunningCloud
from support.judged_stacks import STACKS
from support.launches import fleet_call
from support.operators import a_scope
from support.permissions import (
    MACHINES,
    RIGHTS,
    ROLES,
    RefusedError,
    World,
    a_world,
    rights_of,
    statements,
    without,
)

from gpucluster.aws.operator_documents import PolicyRole, documents
from gpucluster.cloud.port import CloudError
from gpucluster.plan.iam_policies import (
    HeadScope,
    JobsScope,
    NodeScope,
    head_policy,
    jobs_policy,
    node_policy,
    standby_policy,
)
from gpucluster.plan.model import Market
from gpucluster.plan.names import ROLE_HEAD, ROLE_JOBS, ROLE_LOGIN, ROLE_NODE, ROLE_STANDBY, TAG_CLUSTER
from gpucluster.sandbox.aws.moto_state import ACCOUNT

PAGE = Path(__file__).parents[4] / "docs" / "permissions.md"
SPOT_REFUSED = (
    "do not have permission to create the service-linked role"  # EC2's message does not name the action
)
EC2 = "arn:aws:ec2:REGION:ACCOUNT"
HOME_EFS = "arn:aws:elasticfilesystem:REGION:ACCOUNT:file-system/HOME"
SCOPE = HeadScope(
    cluster="NAME",
    region="REGION",
    account="ACCOUNT",
    image="ami-ID",
    machines=("MACHINE",),
    subnets=(f"{EC2}:subnet/PRIVATE",),
    node_group=f"{EC2}:security-group/NODES",
    node_role="arn:aws:iam::ACCOUNT:role/NAME-node",
    bucket="arn:aws:s3:::NAME",
    secret="arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-munge",
    queue="arn:aws:sqs:REGION:ACCOUNT:NAME-events",
    spot=True,
    fleet=True,
    reservations=("cr-ID",),
    placement=True,
    file_systems=[HOME_EFS, "arn:aws:elasticfilesystem:REGION:ACCOUNT:file-system/STATE"],
    ssm=True,
    directory="arn:aws:secretsmanager:REGION:ACCOUNT:secret:DIRECTORY",
    database="arn:aws:secretsmanager:REGION:ACCOUNT:secret:DATABASE",
    key="arn:aws:kms:REGION:ACCOUNT:key/KEY",
)
_NODE = NodeScope(
    bucket=SCOPE.bucket,
    secret=SCOPE.secret,
    ssm=True,
    directory=SCOPE.directory,
    key=SCOPE.key,
    file_systems=[HOME_EFS],
)
_JOBS = JobsScope(
    own_bucket=SCOPE.bucket, read=("s3://DATA/READ", "s3://WHOLE"), write=("s3://DATA/WRITTEN",)
)
POLICIES = {
    ROLE_HEAD: head_policy(SCOPE),
    ROLE_STANDBY: standby_policy(SCOPE),
    ROLE_NODE: node_policy(
        replace(
            _NODE,
            jobs_role="arn:aws:iam::ACCOUNT:role/NAME-jobs",
            boot_scripts=["arn:aws:s3:::SITE/SCRIPT"],
        )
    ),
    ROLE_LOGIN: node_policy(_NODE),
    ROLE_JOBS: jobs_policy(_JOBS),
}
ROWS = [(role, sid, action) for role, document in POLICIES.items() for sid, action in rights_of(document)]
IDS = [f"{role}-{sid}-{action}" for role, sid, action in ROWS]
# statement -> the part of a spec that it requires
ONLY_IF = {
    "Fleet": "a source has several machines",
    "LaunchSpot": "a source is spot",
    "SpotRole": "a source is spot",
    "CommandOutput": "`access.ssm`",
    "SessionManager": "`access.ssm`",
    "FileSystems": "`storage[].efs` without an id",
    "Directory": "`directory`",
    "BootScripts": "`pools[].on_boot`",
    "JobsRole": "`aws.jobs`",
    "StoredKey": "`aws.kms_key`",
    "VolumeGrant": "`aws.kms_key`",
    "VolumeKey": "`aws.kms_key`",
    "Read": "`aws.jobs.read`",
    "Write": "`aws.jobs.write`",
    "List": "a whole bucket in `aws.jobs`",
    "ListFolders0": "folders of a bucket in `aws.jobs`; one such statement a bucket",
}
INTRODUCTIONS = {
    ROLE_HEAD: "The machine of slurmctld and the elastic daemon.",
    ROLE_STANDBY: "The second head. It has all permissions of the head except the creation of the munge key.",
    ROLE_NODE: "Each node. It needs no permission to terminate itself: its launch template terminates it at shutdown.",
    ROLE_LOGIN: "Each login machine. Its permissions are those of a node, because Slurm's commands use the same munge key.",
    ROLE_JOBS: "Jobs, if the spec has `aws.jobs`. No machine has this role: the agent of a node assumes it and gives each job credentials for an hour\n"
    "(`docs/decisions/0005-credentials-of-jobs.md`). The role is always denied the cluster's own bucket.",
}


@pytest.fixture(scope="module")
def made() -> Generator[World]:
    with a_world() as world:
        yield world


@pytest.fixture
def world(made: World) -> World:
    fresh: RunningCloud = made.cloud.fresh()
    fresh.model.reserve("p5.48xlarge", "us-east-1a", 1, id="cr-0123456789abcdef0")
    fresh.model.spot_role = False
    return made


@pytest.mark.loopback
@pytest.mark.parametrize(("role", "sid", "action"), ROWS, ids=IDS)
def test_scenario_is_refused_without_the_action(world: World, role: str, sid: str, action: str) -> None:
    scenario, whole = RIGHTS[sid, action].scenario, world.policies()[role]
    scenario(world, role)
    world.cloud.fresh()
    world.put(role, without(whole, sid, action))
    try:
        with pytest.raises((CloudError, ClientError, RefusedError)) as caught:
            scenario(world, role)
    finally:
        world.put(role, whole)
    expected = SPOT_REFUSED if sid == "SpotRole" else f"the {action} action"
    assert expected in str(caught.value)


@pytest.mark.loopback
@pytest.mark.parametrize("role", [ROLE_HEAD, ROLE_STANDBY])
def test_machine_outside_the_plan_is_refused(world: World, role: str) -> None:
    """A request may replace the machine type of its template. Regression: p4de ran at the site's cost, with our tag and template."""
    port = world.port(role)
    port.launch(world.request(machine=MACHINES[0]))
    with pytest.raises(CloudError, match="ec2:RunInstances"):
        port.launch(world.request(machine="p4de.24xlarge"))
    call = fleet_call(
        "p4de.24xlarge",
        "p4de.24xlarge",
        template_id=world.network.template,
        subnet_id=world.network.subnets["us-east-1a"],
        zone="us-east-1a",
        market=Market.ON_DEMAND,
        tags={TAG_CLUSTER: "burst"},
    )
    answer = port.fleet(call)  # a refusal is inside a 200 (T14)
    assert answer.instances == ()
    assert "ec2:RunInstances" in answer.errors[0].message


@pytest.mark.loopback
def test_head_launches_into_a_shared_vpc(made: World) -> None:
    """A network account owns VPC and subnets; instances, volumes and templates belong to the caller (T50)."""
    owner, moto = "210987654321", made.cloud.api.moto
    made.cloud.fresh()
    shared = replace(made)
    moto.share_vpc(shared.network.vpc, owner)
    try:
        ec2 = shared.cloud.client("ec2")
        subnets = ec2.describe_subnets(SubnetIds=[*shared.network.subnets.values()])["Subnets"]
        assert {subnet["OwnerId"] for subnet in subnets} == {owner}
        assert ec2.describe_vpcs(VpcIds=[shared.network.vpc])["Vpcs"][0]["OwnerId"] == owner
        with pytest.raises(CloudError, match="ec2:RunInstances"):
            RIGHTS["LaunchFrom", "ec2:RunInstances"].scenario(shared, ROLE_HEAD)
        shared.owner = owner
        shared.put(ROLE_HEAD, shared.policies()[ROLE_HEAD])
        for right in ("LaunchFrom", "Fleet"):
            action = "ec2:RunInstances" if right == "LaunchFrom" else "ec2:CreateFleet"
            RIGHTS[right, action].scenario(shared, ROLE_HEAD)
    finally:
        moto.share_vpc(made.network.vpc, ACCOUNT)
        made.put(ROLE_HEAD, made.policies()[ROLE_HEAD])


def test_table_has_exactly_the_actions_of_the_policies() -> None:
    assert set(RIGHTS) == {(sid, action) for _, sid, action in ROWS}


def test_scenarios_run_under_the_whole_policies(made: World) -> None:
    assert set(POLICIES) == set(ROLES)
    for role, document in made.policies().items():
        assert rights_of(document) == rights_of(POLICIES[role]), role


def test_page_is_current(request: pytest.FixtureRequest) -> None:
    text = "\n".join([*page(), *eks_permissions.page()]) + "\n"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text, (
        "docs/permissions.md is stale: pytest tests/unit/sandbox/aws/test_permissions.py --update-golden"
    )


def page() -> Iterator[str]:
    yield "# What each role may do, why, and which test fails without it"
    yield ""
    yield "Generated by `tests/unit/sandbox/aws/test_permissions.py` from the policies that `pulumi up` writes (`src/gpucluster/plan/iam_policies.py`)"
    yield "and the table in `tests/support/permissions.py`; run it with `--update-golden`. Each row is a test: its scenario passes under the"
    yield "whole policy of the role in the sandbox, which enforces policies. Without the action it is refused, and the error names the"
    yield "action. `NAME` is the cluster. The permission boundary of a site (`aws.boundary`) also limits every role."
    for role, document in POLICIES.items():
        yield from _role(role, document)
    yield from (
        "",
        "## Other permissions of jobs",
        "",
        "None. On a node only root and the agent reach the metadata service, so a job's user gets no credentials of the machine's",
        "role (`tests/sandbox/test_security.py`).",
        "",
        "## Actions that are evaluated, but not called",
        "",
        "The sandbox has Systems Manager's commands, not its sessions. For the rows of `SessionManager` only the policy is evaluated here;",
        "`tests/unit/sandbox/aws/test_run_command.py` shows that an agent without one of these rights is not registered.",
    )
    yield from _operators()


OPERATORS = {
    PolicyRole.PLAN: "`pulumi preview`, also with `--refresh`, `gpucluster doctor`, `plan --live`, `diff`. Only reads.",
    PolicyRole.APPLY: "`pulumi up`, `refresh`, `destroy` and `gpucluster down`.",
    PolicyRole.COMMANDS: "`gpucluster status`, `why`, `timeline`, `pool`, `node`, `reconcile`, `accounts`, `logs`, `exec` and `validate` by Systems Manager, which is root on the machines. `tests/unit/sandbox/aws/test_run_command.py`, and for the statements `Validate…` `tests/unit/validate/test_cloud_stores.py`, fail without each action.",
    PolicyRole.BOUNDARY: "The most that the roles of machines and jobs may do. It gives no right.",
}


def _operators() -> Iterator[str]:
    """The operator's policies for a spec with every kind of resource, a key and a boundary of its own."""
    boundary = f"arn:aws:iam::{ACCOUNT}:policy/burst-boundary"
    plan = aws(boundary=boundary)(STACKS["own key"]())
    scope = a_scope(plan)
    yield from (
        "",
        "# What an operator may do",
        "",
        "From `gpucluster plan SPEC --operator-policy ROLE` (`src/gpucluster/aws/operator_policies.py`), for a spec with every kind of",
        "resource, `aws.kms_key` and `aws.boundary`; a smaller spec has fewer rows. The actions come from `docs/facts/aws-calls.md`. `?` is one",
        "of the characters that Pulumi adds to a name. Tests: `tests/engine/test_operator.py` runs the program with exactly these rights,",
        "`tests/unit/aws/test_operator_policies.py` checks limits and sizes, `tests/unit/judges/test_iam.py` compares with AWS's reference.",
    )
    for role, text in OPERATORS.items():
        made = documents(role, scope)
        sizes = ", ".join(str(one.size) for one in made)
        yield from ("", f"## {role}", "", f"{text} {len(made)} documents with {sizes} characters." if len(made) > 1 else f"{text} One document with {sizes} characters.")  # fmt: skip
        yield from ("", "| statement | actions | resource | condition |", "| --- | --- | --- | --- |")
        for one in (s for d in made for s in json.loads(d.text)["Statement"]):
            actions = "<br>".join(f"`{a}`" for a in one["Action"])
            row = f"| {one['Sid']} | {actions} | {_resources(one)} | {_when('', one)} |"
            yield row.replace("us-east-2", "REGION").replace(ACCOUNT, "ACCOUNT").replace("burst", "NAME")


def _role(role: str, document: str) -> Iterator[str]:
    yield from ("", f"## {role}", "", INTRODUCTIONS[role], "")
    yield "| action | resource | condition | reason | test |"
    yield "| --- | --- | --- | --- | --- |"
    for sid, one in statements(document):
        for action in one["Action"] if one["Effect"] == "Allow" else ():
            right = RIGHTS[sid, action]
            cells = (f"`{action}`", _resources(one), _when(sid, one), right.why, f"`[{role}-{sid}-{action}]`")
            yield f"| {' | '.join(cells)} |"


def _resources(statement: Any) -> str:
    return "<br>".join(f"`{one}`" for one in statement["Resource"])


def _when(sid: str, statement: Any) -> str:
    conditions = [
        f"`{key}` is {' or '.join(f'`{v}`' for v in ([wanted] if isinstance(wanted, str) else wanted))}"
        for operator in statement.get("Condition", {}).values()
        for key, wanted in operator.items()
    ]
    required = [f"(only if the spec has: {ONLY_IF[sid]})"] if sid in ONLY_IF else []
    return "<br>".join([*conditions, *required]) or "-"


def test_smaller_spec_has_fewer_actions() -> None:
    small = replace(
        SCOPE, spot=False, fleet=False, placement=False, ssm=False, directory=None, key=None, file_systems=()
    )
    lost = {sid for sid, _ in rights_of(POLICIES[ROLE_HEAD])} - {
        sid for sid, _ in rights_of(head_policy(small))
    }
    assert lost == {sid for sid in ONLY_IF if sid in dict(rights_of(POLICIES[ROLE_HEAD]))}
    plain = node_policy(replace(_NODE, ssm=False, directory=None, key=None, file_systems=()))
    assert {sid for sid, _ in rights_of(plain)} == {"Bundle", "Key"}
    assert {sid for sid, _ in rights_of(jobs_policy(replace(_JOBS, write=())))} == {
        "Read",
        "List",
        "ListFolders0",
    }
    assert json.loads(head_policy(small))["Version"] == "2012-10-17"
