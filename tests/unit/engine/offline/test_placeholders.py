"""Placeholder ARNs have the form that the service authorization reference gives."""

import re

import pytest
from support.judged_stacks import _FORMS

from gpucluster.engine.offline import placeholders

KINDS = sorted(kind for kind, forms in _FORMS.items() if forms[1] and kind in placeholders._ARNS)


@pytest.mark.parametrize("kind", KINDS)
def test_arn_has_the_form_of_its_service(kind: str) -> None:
    """Regression: `arn:aws:iam:us-east-1:...:role/...` and `getKey/looked-up` stood in the rights of a review."""
    identifier, form = _FORMS[kind]
    fields = {"region": "us-east-1", "account": placeholders.ACCOUNT, "name": "made", "id": "made"}
    expected = (identifier if form == "{id}" else form).format(**fields)
    assert placeholders.outputs(kind, "made")["arn"] == expected


def test_arn_of_a_look_up_names_no_function() -> None:
    for kind in (
        "aws:kms/getKey:getKey",
        "aws:ec2/getSubnet:getSubnet",
        "aws:efs/getFileSystem:getFileSystem",
    ):
        arn = str(placeholders.outputs(kind, "fs-1", "eu-west-1")["arn"])
        assert re.fullmatch(
            r"arn:aws:[a-z0-9]+:eu-west-1:000000000000:(key|subnet|file-system)/[a-z0-9-]+", arn
        )
