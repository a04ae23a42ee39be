"""Which context leads to the cluster of a spec."""

from typing import Any

import pytest
from support.builders import a_kube_plan

from gpucluster.errors import StateError
from gpucluster.k8s_apply.contexts import context_of

EXISTING = (("control_plane: eks", "existing: {context: prod, eks_name: prod}"),)
ARN = "arn:aws:eks:us-west-2:123456789012:cluster/kube"
OTHERS = [
    "arn:aws:eks:us-east-1:123456789012:cluster/kube",  # another region
    "arn:aws:eks:us-west-2:123456789012:cluster/kube-tune",
    "kube",
]


def config(*names: str, **aliases: str) -> dict[str, Any]:
    rows = {**{name: name for name in names}, **aliases}
    return {"contexts": [{"name": name, "context": {"cluster": cluster}} for name, cluster in rows.items()]}


def chosen(
    found: dict[str, Any], given: str | None = None, *changes: tuple[str, str], account: str = ""
) -> str:
    plan = a_kube_plan(*changes)
    assert plan.kubernetes is not None
    return context_of(plan, plan.kubernetes, found, given, account)


def test_eks_has_the_context_of_its_arn() -> None:
    assert chosen(config(*OTHERS, ARN)) == ARN


def test_alias_of_the_arn_is_found() -> None:
    assert chosen(config(*OTHERS, mine=ARN)) == "mine"


def test_none_says_how_to_make_it() -> None:
    with pytest.raises(StateError) as found:
        chosen(config(*OTHERS))
    assert found.value.next_step == "aws eks update-kubeconfig --region us-west-2 --name kube"
    assert "there are: arn:aws:eks:us-east-1" in found.value.message


def test_empty_kubeconfig() -> None:
    """kubectl prints null for an empty list."""
    with pytest.raises(StateError, match="there are: none"):
        chosen({"contexts": None})


def test_two_are_named() -> None:
    with pytest.raises(StateError, match="2 contexts") as found:
        chosen(config(ARN, admin=ARN))
    assert found.value.next_step == "name one: --context admin"
    assert chosen(config(ARN, admin=ARN), "admin") == "admin"


def test_existing_cluster_has_the_context_of_the_spec() -> None:
    assert chosen(config("prod", ARN), None, *EXISTING) == "prod"
    with pytest.raises(StateError, match=r"existing\.context is prod"):
        chosen(config(ARN), None, *EXISTING)


def test_context_that_is_given_must_exist() -> None:
    with pytest.raises(StateError, match="--context says nowhere"):
        chosen(config(ARN), "nowhere")


OTHER_ACCOUNT = ARN.replace("123456789012", "210987654321")


@pytest.mark.parametrize("name", OTHERS[:2])
def test_given_context_of_another_eks_cluster_is_refused(name: str) -> None:
    """Regression: with --context nothing was compared."""
    with pytest.raises(StateError, match="the context mine leads to the EKS cluster") as found:
        chosen(config(mine=name), "mine")
    assert "the spec and its bindings are of the EKS cluster kube in us-west-2: nothing was read" in str(
        found.value
    )
    assert found.value.next_step == (
        "name a context of that cluster: aws eks update-kubeconfig --region us-west-2 --name kube"
    )


def test_given_context_without_an_arn_is_taken() -> None:
    assert chosen(config(mine="https://10.0.0.1"), "mine", account="123456789012") == "mine"


def test_cluster_of_another_account_is_not_the_one_of_the_bindings() -> None:
    """Regression: the account in the ARN was ignored."""
    assert chosen(config(ARN, OTHER_ACCOUNT), account="123456789012") == ARN
    with pytest.raises(
        StateError,
        match="no context of the kubeconfig leads to the EKS cluster kube in us-west-2 of the account 123456789012",
    ):
        chosen(config(OTHER_ACCOUNT), account="123456789012")
    with pytest.raises(
        StateError, match="leads to the EKS cluster kube in us-west-2 of the account 210987654321, the spec"
    ):
        chosen(config(mine=OTHER_ACCOUNT), "mine", account="123456789012")
    assert chosen(config(OTHER_ACCOUNT)) == OTHER_ACCOUNT, "without bindings the account is not known"


def test_name_of_a_context_does_not_hide_its_cluster() -> None:
    with pytest.raises(StateError, match="no context"):
        chosen({"contexts": [{"name": ARN, "context": {"cluster": OTHERS[0]}}]})
