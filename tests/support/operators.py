"""Operators with exactly the generated policies: roles in the cloud, and their keys for the engine."""

import json
from dataclasses import replace
from typing import Any, TypeVar

import boto3

from gpucluster.aws.operator_documents import PolicyRole, documents
from gpucluster.aws.operator_policies import OperatorScope, StateBackend, scope_of
from gpucluster.engine.offline import run as run_offline
from gpucluster.plan.model import AwsPlan
from gpucluster.sandbox.aws.moto_state import ACCOUNT
from support.engine_stack import Cluster

P = TypeVar("P", bound=AwsPlan)
STATE = StateBackend(bucket="research-pulumi-state", key="alias/pulumi")


def a_scope(plan: AwsPlan) -> OperatorScope:
    """Return the scope of a plan without an account, as the command does."""
    return scope_of(plan, run_offline("gpucluster.aws.program:declare", plan), STATE)


def as_operator(cluster: Cluster[P], role: PolicyRole) -> Cluster[P]:
    """Return the cluster with the keys of an operator who has exactly the policies of `role`."""
    scope = a_scope(cluster.plan)
    texts = [one.text for one in documents(role, scope)]
    return as_caller(cluster, f"operator-{role}", texts)


def as_caller(cluster: Cluster[P], name: str, texts: list[str], boundary: str | None = None) -> Cluster[P]:
    """Return the cluster with the keys of a role that has these managed policies."""
    iam = cluster.client("iam")
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": ACCOUNT}, "Action": "sts:AssumeRole"},
        ],
    }
    bound: dict[str, Any] = {"PermissionsBoundary": boundary} if boundary else {}
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust), **bound)
    for number, text in enumerate(texts):
        made = iam.create_policy(PolicyName=f"{name}-{number}", PolicyDocument=text)["Policy"]["Arn"]
        iam.attach_role_policy(RoleName=name, PolicyArn=made)
    arn = f"arn:aws:iam::{ACCOUNT}:role/{name}"
    keys = cluster.client("sts").assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
    environment = {
        **cluster.target.environment,
        "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
        "AWS_SESSION_TOKEN": keys["SessionToken"],
    }
    return replace(cluster, target=replace(cluster.target, environment=environment))


def own_client(cluster: Cluster[P], service: str) -> Any:
    """Return a client with the keys of the cluster's environment."""
    env = cluster.target.environment
    session: Any = boto3.Session(
        env["AWS_ACCESS_KEY_ID"],
        env["AWS_SECRET_ACCESS_KEY"],
        env.get("AWS_SESSION_TOKEN"),
        region_name=cluster.plan.aws.region,
    )
    return session.client(service, endpoint_url=env["AWS_ENDPOINT_URL"])


def texts_without(scope: OperatorScope, role: PolicyRole, action: str) -> list[str]:
    """Return the documents of a role without one action. AssertionError if they do not have it."""
    found: list[str] = []
    had = 0
    for one in documents(role, scope):
        document = json.loads(one.text)
        for statement in document["Statement"]:
            had += action in statement["Action"]
            statement["Action"] = [a for a in statement["Action"] if a != action]
        document["Statement"] = [s for s in document["Statement"] if s["Action"]]
        found.append(json.dumps(document))
    assert had, f"no statement has {action}"
    return found
