"""Tests of the shipped pack: only its own rule finds each planted mistake, and our stacks pass."""

import base64
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.declared import declared_by
from support.policy_mistakes import OPEN, PLANTED, Stack, good

from gpucluster.aws.program import declare
from gpucluster.cli.context import resolve_file
from gpucluster.cli.resources import recorded, why_not
from gpucluster.engine.offline.model import Resource
from gpucluster.engine.policy import EnforcementLevel, evaluate, load

ROOT = Path(__file__).parents[3]
PACK = load(ROOT / "policies")
Change = Callable[[Stack], Iterable[Resource]]
OURS = [file for file in sorted((ROOT / "stacks").glob("*.yaml")) if why_not(resolve_file(file).plan) is None]


def test_good_stack_passes_every_rule() -> None:
    assert evaluate([PACK], good().values()).findings == ()


@pytest.mark.parametrize(("change", "rule", "where"), list(PLANTED.values()), ids=list(PLANTED))
def test_mistake_is_found_only_by_its_rule(change: Change, rule: str, where: str) -> None:
    report = evaluate([PACK], change(good()))
    assert {(f.rule, f.property) for f in report.violations} >= {(rule, where)}
    assert {f.rule for f in report.findings} == {rule}
    assert not report.passed
    for one in report.violations:
        assert all((one.found, one.expected, one.next_step, one.name))


def test_every_rule_has_planted_mistake_and_undecided_case() -> None:
    names = {rule.name for rule in PACK.rules}
    assert {rule for _, rule, _ in PLANTED.values()} == names
    assert {rule for _, rule, _ in OPEN.values()} == names - {
        "unprotected-data"
    }  # the program may choose this


@pytest.mark.parametrize(("change", "rule", "where"), list(OPEN.values()), ids=list(OPEN))
def test_unknown_value_is_undecided(change: Change, rule: str, where: str) -> None:
    report = evaluate([PACK], change(good()))
    assert [(f.rule, f.property) for f in report.open] == [(rule, where)]
    assert report.violations == ()
    assert report.passed


def test_no_secret_is_shown() -> None:
    for name, (change, rule, _) in PLANTED.items():
        if rule == "secret-in-user-data":
            text = repr(evaluate([PACK], change(good())).findings)
            for word in ("hunter22", "AKIAIOSFODNN7EXAMPLE", "OPENSSH"):
                assert word not in text, name


@pytest.mark.parametrize("file", OURS, ids=[file.stem for file in OURS])
def test_shipped_stacks_pass(file: Path) -> None:
    planned = recorded(resolve_file(file).plan, file)
    assert planned is not None
    report = evaluate([PACK], planned.resources)
    assert [str(f) for f in report.violations] == []
    # only properties that depend on a name or an ARN of AWS may be undecided
    assert {(f.rule, f.property) for f in report.open} <= {
        ("secret-in-user-data", "userData"),
        ("secret-in-user-data", "userDataBase64"),
        ("wide-policy", "policy"),
        ("wide-policy", "assumeRolePolicy"),  # the head's role assumes the jobs' role by its ARN
    }


@pytest.mark.parametrize("file", OURS, ids=[file.stem for file in OURS])
def test_texts_pass_with_known_names(file: Path) -> None:
    """Policies and user data as after `up`. Mocks have no dependencies and no protection."""
    rules = tuple(r for r in PACK.rules if r.name in {"wide-policy", "secret-in-user-data"})
    made = declared_by(partial(declare, resolve_file(file).plan))
    known = [
        Resource(
            urn=f"{one.type}::{one.name}", type=one.type, name=one.name, custom=True, properties=one.inputs
        )
        for one in made
    ]
    assert len([one for one in known if one.type == "aws:iam/rolePolicy:RolePolicy"]) >= 2
    assert evaluate([replace(PACK, rules=rules)], known).findings == ()


def test_all_rules_are_mandatory() -> None:
    assert {rule.level for rule in PACK.rules} == {EnforcementLevel.MANDATORY}


@pytest.mark.parametrize(
    "text",
    [
        'TOKEN=$(curl -X PUT "http://169.254.169.254/latest/api/token")',
        'curl -H "X-aws-ec2-metadata-token: $TOKEN" http://169.254.169.254/latest/meta-data/',
        "secret: arn:aws:secretsmanager:us-east-1:123456789012:secret:ldap-AbCdEf",
        "password_file: /run/secrets/ldap\nsecret: /run/secrets/ldap",
        "compass: northwest\nroot:!:19000",
        "systemctl start --no-block gpucluster-agent.service gpucluster-standby.service",
    ],
)
def test_words_about_secrets_are_no_secrets(text: str) -> None:
    given = {"userData": base64.b64encode(f"#!/bin/sh\n{text}\n".encode()).decode()}
    stack = good()
    template = replace(stack["template"], properties={**stack["template"].properties, **given})
    assert evaluate([PACK], {**stack, "template": template}.values()).findings == ()
