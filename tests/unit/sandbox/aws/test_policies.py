"""Policy evaluation: rows of policies and requests. Unknown elements never count as true."""

from typing import Any

import pytest

from gpucluster.sandbox.aws.iam.policies import Need, UnknownPolicyPart, allows, check

NODE = "arn:aws:ec2:us-east-1:123456789012:instance/i-1"
ENDS = {"Action": "ec2:TerminateInstances", "Resource": "*"}


def statement(effect: str = "Allow", **parts: Any) -> dict[str, Any]:
    return {"Statement": [{"Effect": effect, **parts}]}


def need(context: dict[str, tuple[str, ...]] | None = None) -> Need:
    return Need(action="ec2:TerminateInstances", resource=NODE, context=context or {})


def tagged(value: str) -> Need:
    return need({"aws:resourcetag/gpucluster:cluster": (value,)})


def when(operator: str, key: str, *values: str) -> dict[str, Any]:
    return statement(**ENDS, Condition={operator: {key: list(values)}})


OWN = "aws:ResourceTag/gpucluster:cluster"

ROWS: list[tuple[str, list[dict[str, Any]], Need, bool]] = [
    ("nothing is allowed by nothing", [], need(), False),
    ("the action and resource fit", [statement(**ENDS)], need(), True),
    ("another action does not", [statement(Action="ec2:RunInstances", Resource="*")], need(), False),
    ("actions have no case", [statement(Action="EC2:terminateinstances", Resource="*")], need(), True),
    ("a star in an action", [statement(Action="ec2:Terminate*", Resource="*")], need(), True),
    (
        "one action of a list",
        [statement(Action=["s3:GetObject", "ec2:TerminateInstances"], Resource="*")],
        need(),
        True,
    ),
    ("resources have a case", [statement(Action="*", Resource=NODE.upper())], need(), False),
    ("a star in a resource", [statement(Action="*", Resource="arn:aws:ec2:*:*:instance/*")], need(), True),
    ("a question mark is one letter", [statement(Action="*", Resource=NODE[:-1] + "?")], need(), True),
    ("brackets are letters", [statement(Action="*", Resource=NODE[:-1] + "[1]")], need(), False),
    ("deny wins over allow", [statement(**ENDS), statement("Deny", **ENDS)], need(), False),
    (
        "a deny of another thing does not",
        [statement(**ENDS), statement("Deny", Action="s3:*", Resource="*")],
        need(),
        True,
    ),
    ("all but the named actions", [statement(NotAction="iam:*", Resource="*")], need(), True),
    ("not the named action", [statement(NotAction="ec2:*", Resource="*")], need(), False),
    ("all but the named resources", [statement(Action="*", NotResource="arn:aws:s3:::*")], need(), True),
    ("a single statement without a list", [{"Statement": {"Effect": "Allow", **ENDS}}], need(), True),
    ("the tag is equal", [when("StringEquals", OWN, "burst")], tagged("burst"), True),
    ("the tag differs", [when("StringEquals", OWN, "burst")], tagged("other"), False),
    ("the tag is not there", [when("StringEquals", OWN, "burst")], need(), False),
    ("one of two values", [when("StringEquals", OWN, "a", "burst")], tagged("burst"), True),
    ("a tag's name has a case", [when("StringEquals", OWN.upper(), "burst")], tagged("burst"), False),
    ("IfExists holds without the key", [when("StringEqualsIfExists", OWN, "burst")], need(), True),
    (
        "IfExists tests the key that is there",
        [when("StringEqualsIfExists", OWN, "burst")],
        tagged("x"),
        False,
    ),
    ("not equal holds without the key", [when("StringNotEquals", OWN, "burst")], need(), True),
    ("not equal refuses the equal", [when("StringNotEquals", OWN, "burst")], tagged("burst"), False),
    ("like takes stars", [when("StringLike", OWN, "bu*")], tagged("burst"), True),
    ("equals takes no stars", [when("StringEquals", OWN, "bu*")], tagged("burst"), False),
    (
        "two operators must both hold",
        [statement(**ENDS, Condition={"StringEquals": {OWN: "burst"}, "StringLike": {OWN: "x*"}})],
        tagged("burst"),
        False,
    ),
    (
        "an ARN may have stars",
        [when("ArnLike", "ec2:LaunchTemplate", "arn:*:launch-template/lt-*")],
        need({"ec2:launchtemplate": ("arn:aws:ec2:x:1:launch-template/lt-1",)}),
        True,
    ),
    (
        "all tag keys are of the list",
        [when("ForAllValues:StringEquals", "aws:TagKeys", "a", "b")],
        need({"aws:tagkeys": ("a", "b")}),
        True,
    ),
    (
        "one tag key is not of the list",
        [when("ForAllValues:StringEquals", "aws:TagKeys", "a", "b")],
        need({"aws:tagkeys": ("a", "c")}),
        False,
    ),
    (
        "no tag keys at all are all of any list",
        [when("ForAllValues:StringEquals", "aws:TagKeys", "a")],
        need(),
        True,
    ),
    (
        "any of the tag keys",
        [when("ForAnyValue:StringEquals", "aws:TagKeys", "a")],
        need({"aws:tagkeys": ("b", "a")}),
        True,
    ),
    ("any of no tag keys is none", [when("ForAnyValue:StringEquals", "aws:TagKeys", "a")], need(), False),
    ("null asks that it is not there", [when("Null", OWN, "true")], need(), True),
    ("null false asks that it is there", [when("Null", OWN, "false")], need(), False),
]


@pytest.mark.parametrize(("sentence", "documents", "asked", "allowed"), ROWS, ids=[row[0] for row in ROWS])
def test_rows(sentence: str, documents: list[dict[str, Any]], asked: Need, allowed: bool):
    assert allows(documents, asked) is allowed, sentence


UNKNOWN = [
    ("an operator", when("NumericLessThan", "aws:TagKeys", "1"), "NumericLessThan"),
    ("a quantifier", when("ForSomeValues:StringEquals", "aws:TagKeys", "1"), "ForSomeValues"),
    ("a key", when("StringEquals", "aws:SourceIp", "10.0.0.1"), "aws:SourceIp"),
    ("a variable in a value", when("StringEquals", OWN, "${aws:username}"), "username"),
    (
        "a variable in a resource",
        statement(Action="*", Resource="arn:aws:s3:::x/${aws:username}"),
        "username",
    ),
    ("an element", statement(**ENDS, Principal="*"), "Principal"),
]


@pytest.mark.parametrize(("sentence", "document", "named"), UNKNOWN, ids=[row[0] for row in UNKNOWN])
def test_unknown_policy_element_is_refused_by_name(sentence: str, document: dict[str, Any], named: str):
    with pytest.raises(UnknownPolicyPart, match=named):
        check(document)
    with pytest.raises(UnknownPolicyPart, match=named):
        allows([document], need())


def test_unknown_element_is_refused_even_if_another_statement_allows():
    with pytest.raises(UnknownPolicyPart):
        allows([statement(**ENDS), when("IpAddress", "aws:TagKeys", "x")], need())


def test_policies_of_the_program_can_be_evaluated():
    """The sandbox can evaluate every policy of aws/."""
    from gpucluster.plan.iam_policies import HeadScope, NodeScope, head_policy, node_policy
    from gpucluster.sandbox.aws.iam.policies import parse

    base = "arn:aws:ec2:us-east-1:123456789012"
    head = HeadScope(
        cluster="burst",
        region="us-east-1",
        account="123456789012",
        image="ami-1",
        machines=["p5.48xlarge"],
        subnets=[f"{base}:subnet/subnet-1"],
        node_group=f"{base}:security-group/sg-1",
        node_role="arn:aws:iam::123456789012:role/node",
        bucket="arn:aws:s3:::bucket",
        secret="arn:aws:secretsmanager:us-east-1:123456789012:secret:x-1",
        queue="arn:aws:sqs:us-east-1:123456789012:x",
        spot=True,
        fleet=True,
        reservations=["cr-1"],
    )
    check(parse(head_policy(head)))
    check(parse(node_policy(NodeScope(bucket=head.bucket, secret=head.secret))))
