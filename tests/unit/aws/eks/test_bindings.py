"""The bindings of an EKS cluster. `gpucluster k8s` compares their account with the ARN of the context's cluster."""

import json
from typing import Any

import pulumi
import pytest
from support.builders import a_kube_plan
from support.declared import ACCOUNT
from support.eks_plans import resources_of


def test_bindings_have_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = list[str]()

    def export(name: str, value: Any) -> None:
        if name == "bindings":
            value.apply(texts.append)

    monkeypatch.setattr(pulumi, "export", export)
    resources_of(a_kube_plan())
    assert [json.loads(text)["account"] for text in texts] == [ACCOUNT]
