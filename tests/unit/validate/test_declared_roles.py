"""The roles that `validate` expects are those of the program, and a policy is compared by its statements."""

import base64
import io
import json
import tarfile
from typing import Any

import pytest
from support.judged_stacks import EVERY, judged

from gpucluster.checks.policy_documents import UNKNOWN, differences
from gpucluster.plan import codec
from gpucluster.plan.model import Bindings, SlurmOnAws
from gpucluster.plan.names import BINDINGS_FILE
from gpucluster.validate.declared_roles import declared_roles

SLURM = [name for name, make in EVERY.items() if isinstance(make(), SlurmOnAws)]


def bindings_of(stack: str) -> Bindings:
    """From the bundle that the program declares."""
    (bundle,) = (r for r in judged(stack).resources if r.type == "aws:s3/bucketObjectv2:BucketObjectv2")
    packed = io.BytesIO(base64.b64decode(bundle.inputs["contentBase64"]))
    with tarfile.open(fileobj=packed) as members:
        found = next(m for m in members.getmembers() if m.name.endswith(BINDINGS_FILE))
        text = members.extractfile(found)
        assert text is not None
        return codec.loads(Bindings, text.read().decode())


@pytest.mark.parametrize("stack", SLURM)
def test_roles_of_the_program_are_as_expected(stack: str) -> None:
    plan = EVERY[stack]()
    assert isinstance(plan, SlurmOnAws)
    resources = judged(stack).resources
    policies = {r.name: r.inputs for r in resources if r.type == "aws:iam/rolePolicy:RolePolicy"}
    roles = {r.name: r.inputs for r in resources if r.type == "aws:iam/role:Role"}
    wants = list(declared_roles(plan, bindings_of(stack)))
    assert {want.name for want in wants} <= policies.keys()
    for want in wants:
        assert differences(json.loads(policies[want.name]["policy"]), want.policy) == []
        assert differences(json.loads(roles[want.name]["assumeRolePolicy"]), want.trust) == []


ONE = {"Sid": "Key", "Effect": "Allow", "Action": ["s3:GetObject"], "Resource": [f"arn:aws:s3:::b/{UNKNOWN}"]}
TRUST = {"Effect": "Allow", "Principal": {"AWS": "123456789012"}, "Action": "sts:AssumeRole"}


@pytest.mark.parametrize(
    ("found", "want", "words"),
    [
        ({**ONE, "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/x"}, ONE, []),
        ({**ONE, "Action": "*", "Resource": "arn:aws:s3:::b/x"}, ONE, ["has a changed statement Key"]),
        ({**ONE, "Resource": "*"}, ONE, ["has a changed statement Key"]),
        ({**ONE, "Resource": ["arn:aws:s3:::b/x", "arn:aws:s3:::c/x"]}, ONE, ["has a changed statement Key"]),
        ({**ONE, "Effect": "Deny", "Resource": "arn:aws:s3:::b/x"}, ONE, ["has a changed statement Key"]),
        ({**ONE, "Resource": "arn:aws:s3:::b/x", "Condition": {}}, ONE, ["has a changed statement Key"]),
        ({**ONE, "Sid": "Mine"}, ONE, ["also has the statement Mine", "lacks the statement Key"]),
        ({**TRUST, "Principal": {"AWS": "arn:aws:iam::123456789012:root"}}, TRUST, []),
        ({**TRUST, "Principal": {"AWS": "arn:aws:iam::210987654321:root"}}, TRUST, ["has a changed statement without an id"]),
        ({**TRUST, "Principal": "*"}, TRUST, ["has a changed statement without an id"]),
    ],
)  # fmt: skip
def test_statements_are_compared(found: dict[str, Any], want: dict[str, Any], words: list[str]) -> None:
    assert differences({"Statement": found}, {"Statement": [want]}) == words


@pytest.mark.parametrize("document", [None, "text", [], {"Statement": "text"}])
def test_document_that_is_no_policy_lacks_everything(document: object) -> None:
    assert differences(document, {"Statement": [ONE]}) == ["lacks the statement Key"]


def test_statement_beside_the_declared_ones_is_named() -> None:
    mine = {"Sid": "Mine", "Effect": "Allow", "Action": "*", "Resource": "*"}
    assert differences({"Statement": [mine, TRUST]}, {"Statement": [TRUST]}) == [
        "also has the statement Mine"
    ]
