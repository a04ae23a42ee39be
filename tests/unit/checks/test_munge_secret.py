"""The check of the munge key in the cloud's secret: no answer of it has a key."""

import json

import pytest

from gpucluster.checks.check import CheckStatus, ParseError, QueryOutput
from gpucluster.checks.munge import SecretKey, evaluate_secret_key, parse_secret_key

WANT = SecretKey(arn="arn:aws:secretsmanager:us-west-2:123456789012:secret:burst-munge-1a2b3c4")


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        ({"same": True, "version": "v1"}, CheckStatus.PASS, "burst-munge-1a2b3c4 has it, version v1"),
        (
            {"same": False, "version": "v2"},
            CheckStatus.FAIL,
            "another key, version v2: a machine that boots cannot talk",
        ),
        ({"same": False, "version": ""}, CheckStatus.FAIL, "has no value"),
    ],
)
def test_secret_is_compared_with_the_key_of_the_head(
    answer: dict[str, object], verdict: CheckStatus, words: str
) -> None:
    found = evaluate_secret_key(parse_secret_key((QueryOutput(code=0, stdout=json.dumps(answer)),)), WANT)
    assert found.verdict is verdict
    assert words in found.found


def test_secret_that_cannot_be_read_is_unknown() -> None:
    with pytest.raises(ParseError, match="AccessDenied"):
        parse_secret_key((QueryOutput(code=1, stdout="", stderr="the cluster's secret: AccessDenied"),))
