"""Least privilege: each action of each role has a reason, a scenario that passes with it, and one refusal without it.

`docs/permissions.md` is made here; `--update-golden` writes it anew.
"""

import json
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from clouds import RunningCloud
from permissions import RIGHTS, ROLES, RefusedError, World, a_world, rights_of, statements, without

from gpucluster.aws.policies import (
    HeadScope,
    JobsScope,
    NodeScope,
    head_policy,
    jobs_policy,
    node_policy,
    standby_policy,
)
from gpucluster.cloud.port import CloudError
from gpucluster.plan.names import ROLE_HEAD, ROLE_JOBS, ROLE_LOGIN, ROLE_NODE, ROLE_STANDBY

PAGE = Path(__file__).parents[3] / "docs" / "permissions.md"
SPOT_REFUSED = (
    "do not have permission to create the service-linked role"  # EC2's words do not name the action
)
EC2 = "arn:aws:ec2:REGION:ACCOUNT"
SCOPE = HeadScope(
    cluster="NAME",
    vpc=f"{EC2}:vpc/vpc-ID",
    image="ami-ID",
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
    ssm=True,
    directory="arn:aws:secretsmanager:REGION:ACCOUNT:secret:DIRECTORY",
)
_NODE = NodeScope(bucket=SCOPE.bucket, secret=SCOPE.secret, ssm=True, directory=SCOPE.directory)
_JOBS = JobsScope(
    own_bucket=SCOPE.bucket, read=("s3://DATA/READ", "s3://WHOLE"), write=("s3://DATA/WRITTEN",)
)
POLICIES = {
    ROLE_HEAD: head_policy(SCOPE),
    ROLE_STANDBY: standby_policy(SCOPE),
    ROLE_NODE: node_policy(replace(_NODE, jobs_role="arn:aws:iam::ACCOUNT:role/NAME-jobs")),
    ROLE_LOGIN: node_policy(_NODE),
    ROLE_JOBS: jobs_policy(_JOBS),
}
ROWS = [(role, sid, action) for role, document in POLICIES.items() for sid, action in rights_of(document)]
IDS = [f"{role}-{sid}-{action}" for role, sid, action in ROWS]
# statement -> the wish of a spec without which a role does not have it
ONLY_IF = {
    "Fleet": "a source has several machines",
    "LaunchSpot": "a source is spot",
    "SpotRole": "a source is spot",
    "SessionManager": "`access.ssm`",
    "Directory": "`directory`",
    "JobsRole": "`aws.jobs`",
    "Read": "`aws.jobs.read`",
    "Write": "`aws.jobs.write`",
    "List": "a whole bucket in `aws.jobs`",
    "ListFolders0": "folders of a bucket in `aws.jobs`; one such statement a bucket",
}
WORDS = {
    ROLE_HEAD: "The one machine that Slurm's controller and the elastic daemon run on.",
    ROLE_STANDBY: "A second head, which takes over all but the making of the key.",
    ROLE_NODE: "Each node. A node that ends itself shuts down: its template says terminate.",
    ROLE_LOGIN: "Each login machine: what a node may, for Slurm's commands use the same key.",
    ROLE_JOBS: "Jobs, where the spec has `aws.jobs`; no machine has it. The agent of a node takes it on and hands an hour's keys to each job\n"
    "(`docs/decisions/0005-credentials-of-jobs.md`). Whatever the spec says, the cluster's own bucket is denied to it by name.",
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
def test_without_the_action_it_is_refused(world: World, role: str, sid: str, action: str) -> None:
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


def test_the_table_has_the_rights_of_the_policies_and_no_other() -> None:
    assert set(RIGHTS) == {(sid, action) for _, sid, action in ROWS}


def test_the_world_of_the_scenarios_has_the_whole_policies(made: World) -> None:
    assert set(POLICIES) == set(ROLES)
    for role, document in made.policies().items():
        assert rights_of(document) == rights_of(POLICIES[role]), role


def test_the_page_is_what_the_code_says(request: pytest.FixtureRequest) -> None:
    text = "\n".join(page()) + "\n"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text, (
        "docs/permissions.md is stale: pytest tests/unit/sandbox/test_permissions.py --update-golden"
    )


def page() -> Iterator[str]:
    yield "# What each role may do, why, and which test fails without it"
    yield ""
    yield "Made by `tests/unit/sandbox/test_permissions.py` from the policies that `pulumi up` writes (`src/gpucluster/aws/policies.py`)"
    yield "and the table in `tests/permissions.py`; `--update-golden` writes it anew. Each row is a test: the scenario passes under the"
    yield "role's whole policy in the sandbox's cloud, which enforces it, and is refused with the action's name once the action is taken"
    yield "out. `NAME` is the cluster. A site's permission boundary (`aws.boundary`) bounds every role besides."
    for role, document in POLICIES.items():
        yield from _role(role, document)
    yield from (
        "",
        "## What jobs have otherwise",
        "",
        "Nothing: on a node only root and the agent reach the metadata service, so that a job's user has no machine's role and no",
        "machine's key (`tests/sandbox/test_security.py`).",
        "",
        "## What is judged, but not called",
        "",
        "The sandbox has no Session Manager: the rows of `SessionManager` are judged by the policy's text alone.",
    )


def _role(role: str, document: str) -> Iterator[str]:
    yield from ("", f"## {role}", "", WORDS[role], "")
    yield "| action | on | if | why | test |"
    yield "| --- | --- | --- | --- | --- |"
    for sid, one in statements(document):
        for action in one["Action"] if one["Effect"] == "Allow" else ():
            right = RIGHTS[sid, action]
            cells = (f"`{action}`", _resources(one), _when(sid, one), right.why, f"`[{role}-{sid}-{action}]`")
            yield f"| {' | '.join(cells)} |"


def _resources(statement: Any) -> str:
    return "<br>".join(f"`{one}`" for one in statement["Resource"])


def _when(sid: str, statement: Any) -> str:
    told = [
        f"`{key}` is {' or '.join(f'`{v}`' for v in ([wanted] if isinstance(wanted, str) else wanted))}"
        for operator in statement.get("Condition", {}).values()
        for key, wanted in operator.items()
    ]
    asked = [f"(only where the spec has: {ONLY_IF[sid]})"] if sid in ONLY_IF else []
    return "<br>".join([*told, *asked]) or "-"


def test_a_smaller_wish_has_fewer_rights() -> None:
    small = replace(SCOPE, spot=False, fleet=False, placement=False, ssm=False, directory=None)
    lost = {sid for sid, _ in rights_of(POLICIES[ROLE_HEAD])} - {
        sid for sid, _ in rights_of(head_policy(small))
    }
    assert lost == {sid for sid in ONLY_IF if sid in dict(rights_of(POLICIES[ROLE_HEAD]))}
    plain = node_policy(replace(_NODE, ssm=False, directory=None))
    assert {sid for sid, _ in rights_of(plain)} == {"Bundle", "Key"}
    assert {sid for sid, _ in rights_of(jobs_policy(replace(_JOBS, write=())))} == {
        "Read",
        "List",
        "ListFolders0",
    }
    assert json.loads(head_policy(small))["Version"] == "2012-10-17"
