"""Rights: statements of policies are compared, also where the resource's own text is not known before the deployment."""

import json
from typing import Any

from support.builders import SPEC
from support.reviewed import a_side

from gpucluster.engine.offline.model import Planned, Resource
from gpucluster.gitops.diff import diff
from gpucluster.gitops.model import Compared, Kind
from gpucluster.gitops.report.markdown import markdown
from gpucluster.gitops.report.text import text
from gpucluster.gitops.report.values import values
from gpucluster.gitops.rights import compare_rights
from gpucluster.spec import UpdateClass

READ = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::a/*"]}
WIDER = {"Effect": "Allow", "Action": ["s3:PutObject", "s3:GetObject"], "Resource": "*"}
WHEN = {**READ, "Condition": {"Bool": {"aws:SecureTransport": "true"}}, "Principal": {"AWS": "*"}}
POLICY = "aws:iam/rolePolicy:RolePolicy"
ATTACHED = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"


def planned(*resources: tuple[str, str, dict[str, Any]]) -> Planned:
    made = tuple(
        Resource(urn=f"{kind}::{name}", type=kind, name=name, custom=True, properties=properties)
        for kind, name, properties in resources
    )
    return Planned(project="p", stack="s", resources=made)


def policy(*statements: dict[str, Any], name: str = "jobs") -> tuple[str, str, dict[str, Any]]:
    return POLICY, name, {"policy": json.dumps({"Version": "2012-10-17", "Statement": list(statements)})}


def test_changed_statement_is_shown_before_and_after() -> None:
    (found,) = compare_rights(planned(policy(READ)), planned(policy(WIDER)))
    assert (found.type, found.name, found.kind) == (POLICY, "jobs", Kind.CHANGED)
    assert found.removed == ("Allow s3:GetObject on arn:aws:s3:::a/*",)
    assert found.added == ("Allow s3:GetObject, s3:PutObject on *",)


def test_conditions_and_principals_are_part_of_a_statement() -> None:
    (found,) = compare_rights(planned(policy(READ)), planned(policy(WHEN)))
    assert found.added == (
        'Allow s3:GetObject on arn:aws:s3:::a/* for {"AWS": "*"} if {"Bool": {"aws:SecureTransport": "true"}}',
    )


def test_order_of_statements_and_words_is_no_change() -> None:
    turned = {**WIDER, "Action": ["s3:GetObject", "s3:PutObject"]}
    assert compare_rights(planned(policy(READ, WIDER)), planned(policy(turned, READ))) == ()


def test_policy_and_attachment_come_and_go() -> None:
    ssm = {"policyArn": "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"}
    old, new = planned(policy(READ)), planned((ATTACHED, "head-ssm", ssm))
    gone, come = compare_rights(old, new)
    assert (gone.kind, gone.added) == (Kind.REMOVED, ())
    assert (come.kind, come.added) == (Kind.ADDED, (f"attached {ssm['policyArn']}",))


def test_text_that_is_no_policy_is_shown_and_not_dropped() -> None:
    odd = (POLICY, "jobs", {"policy": "{"})
    (found,) = compare_rights(planned(policy(READ)), planned(odd))
    assert found.added == ("a text that cannot be read: {",)


def test_policy_of_unknown_text_is_no_longer_an_untouched_resource() -> None:
    """Regression: wider rights of jobs were reported as `none touched`."""
    rights = compare_rights(planned(policy(READ)), planned(policy(WIDER)))
    side = a_side(SPEC)
    found = diff(side, side, Compared(resources=(), rights=rights, unseen=("the machine image, unknown",)))
    assert (found.differs, found.worst) == (True, UpdateClass.LIVE)
    assert found.resources is not None
    (resource,) = found.resources
    assert (resource.type, resource.kind, resource.why) == (POLICY, Kind.CHANGED, "its statements change")
    shown = text(found)
    assert "\nrights, with placeholder names (account 000000000000):\n" in shown
    assert (
        "\n    - Allow s3:GetObject on arn:aws:s3:::a/*\n    + Allow s3:GetObject, s3:PutObject on *" in shown
    )
    assert "\nnot looked at: the machine image, unknown\n" in shown
    comment = markdown(found, version="0", command="x")
    assert "+ Allow s3:GetObject, s3:PutObject on *" in comment
    assert "**Not looked at**:\n- the machine image, unknown" in comment
    assert "none touched" not in comment + shown
    said = values(found)
    assert (said["unseen"], said["rights"][0]["kind"]) == (["the machine image, unknown"], "changed")
