"""`gpucluster k8s` on the command line, with stand-ins of kubectl and helm."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.cluster import CONTEXT, Cluster, installed
from support.kube import BOUND
from support.waiting_pods import JOBSET, unreserved

from gpucluster.cli import main as program
from gpucluster.cli.k8s_text import up_lines
from gpucluster.k8s_apply.up import Applied
from gpucluster.plan.codec import dumps

AWAY = "The connection to the server 10.0.0.1:443 was refused - did you specify the right host or port?"
DELETE = ("--delete-data", "--confirm", "kube", "--context", CONTEXT)
STACK = str(Path(__file__).parents[3] / "stacks" / "kube.yaml")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return installed(tmp_path, monkeypatch)


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = program.run(["k8s", *argv])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_dry_run_reads_nothing_and_prints_the_steps(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = said(capsys, "up", STACK, "--dry-run")
    assert code == 0
    assert cluster.calls() == []
    assert out.startswith("1. helm upgrade --install aws-efa-k8s-device-plugin")
    assert (
        "12. kubectl apply --server-side --field-manager=gpucluster --validate=strict -k 60-training" in out
    )


def test_up_then_down_as_json(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "up", STACK, "-o", "json")
    done = json.loads(out)
    assert (code, done["ok"], done["context"]) == (0, True, CONTEXT)
    assert done["applied"]["charts"] == [
        "aws-efa-k8s-device-plugin",
        "gpu-operator",
        "jobset",
        "karpenter",
        "kueue",
    ]
    objects = cluster.values()["objects"]
    del objects[
        "karpenter.sh/v1|NodePool||kube-serve-0"
    ]  # else `down` wants a running Karpenter, which no stand-in plays
    cluster.change(objects=objects)
    code, out, _ = said(capsys, "down", STACK, "-o", "json", *DELETE)
    assert (code, json.loads(out)["emptied"]["retained"]) == (0, [])
    assert cluster.objects() == {}


def test_deletion_of_data_needs_the_name(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "down", STACK, "--delete-data", "--confirm", "other")
    assert code == 2
    assert "found 'other': nothing was deleted" in err
    assert cluster.calls() == []


def test_deletion_of_data_needs_the_account(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Another account can have a cluster of the same name and region."""
    code, _, err = said(capsys, "down", STACK, "--delete-data", "--confirm", "kube")
    assert code == 2
    assert (
        "--delete-data needs the AWS account of kube, which the spec does not have: nothing was deleted"
        in err
    )
    assert "pulumi stack output bindings --stack kube > bindings.json; then repeat it with --bindings" in err
    assert "Bindings without an account: name the cluster with --context" in err
    file = tmp_path / "bindings.json"
    file.write_text(dumps(replace(BOUND, account="210987654321")))
    code, _, err = said(capsys, "down", STACK, "--delete-data", "--confirm", "kube", "--bindings", str(file))
    assert code == 2
    assert (
        "no context of the kubeconfig leads to the EKS cluster kube in us-west-2 of the account 210987654321"
        in err
    )
    assert cluster.calls(" delete ") == []


def test_other_minor_version_is_refused(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.change(version={"major": "1", "minor": "35+"})
    code, _, err = said(capsys, "up", STACK)
    assert code == 2
    assert "leads to Kubernetes 1.35, the spec says 1.36" in err
    assert cluster.objects() == {}


def test_spec_without_kubernetes(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "up", str(Path(STACK).with_name("burst.yaml")))
    assert code == 2
    assert "burst has no kubernetes in its spec" in err


def test_missing_kubectl(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "setpriv").symlink_to("/usr/bin/setpriv")
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = said(capsys, "up", STACK)
    assert code == 2
    assert "there is no kubectl in PATH" in err


def test_why_says_what_a_gang_waits_for(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.change(crds=["jobset", "kueue"])
    cluster.put(JOBSET, unreserved('topology "x" doesn\'t allow to fit any of 4 pod(s)\x1b[31m'))
    code, out, _ = said(capsys, "why", STACK, "research/tune")
    assert code == 0
    assert out.splitlines() == [
        "research/JobSet/tune: queued",
        "  topology: research/JobSet/tune",
        '    Kueue: topology "x" doesn\'t allow to fit any of 4 pod(s)',
        "    next: kubectl get nodes --show-labels",
    ]
    code, out, _ = said(capsys, "why", STACK, "tune", "-o", "json")
    found = json.loads(out)
    assert (code, found["ok"], found["why"]["state"]) == (0, True, "queued")
    assert [one["kind"] for one in found["why"]["causes"]] == ["topology"]


def test_why_asks_again_when_the_api_server_is_away_for_a_moment(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.change(crds=["jobset", "kueue"])
    cluster.put(JOBSET, unreserved("x"))
    cluster.plant("get Node.v1.", AWAY)
    code, out, err = said(capsys, "why", STACK, "research/tune")
    assert (code, out.splitlines()[0]) == (0, "research/JobSet/tune: queued")
    assert "again in a moment: kubectl get: The connection to the server" in err


def test_upgrade_asks_again_when_the_api_server_is_away_for_a_moment(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.plant("/metrics", AWAY)
    code, _, err = said(capsys, "upgrade", STACK)
    assert code == 0
    assert "again in a moment" in err


def test_why_of_nothing(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "why", STACK, "research/tuen")
    assert code == 1
    assert "there is no pod or workload tuen in the namespace research" in err


OLD_API = (
    'apiserver_requested_deprecated_apis{group="resource.k8s.io",removed_release="1.36",resource="resourceclaims",'
    'subresource="",version="v1beta1"} 1\n'
)


def test_upgrade_shows_the_way(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.change(version={"major": "1", "minor": "35+"})
    code, out, _ = said(capsys, "upgrade", STACK)
    assert code == 0
    assert out.startswith(
        "kube: Kubernetes 1.35 in the cluster, 1.36 in the spec: 1 upgrade\n  old versions of APIs: "
    )
    assert "\n1. to 1.36\n" in out
    assert "\n   pulumi up --stack kube\n" in out
    assert cluster.calls(" apply ") == cluster.calls(" delete ") == []


def test_upgrade_that_something_is_in_the_way_of(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.change(version={"major": "1", "minor": "35+"}, metrics=OLD_API)
    code, out, _ = said(capsys, "upgrade", STACK)
    assert (code, "in the way: clients use resourceclaims of resource.k8s.io/v1beta1" in out) == (1, True)
    code, out, _ = said(capsys, "upgrade", STACK, "-o", "json")
    found = json.loads(out)
    assert (code, found["ok"], list(found["steps"])) == (1, False, ["1.36"])


def test_cluster_of_the_wanted_version(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "upgrade", STACK)
    assert (code, out) == (0, "kube: Kubernetes 1.36 in the cluster, 1.36 in the spec: nothing to upgrade\n")


def test_up_takes_fields_of_others_only_on_request(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "up", STACK)[0] == 0
    cluster.change(owned={"v1|Namespace||serving": [['"kubectl-label" using v1', ".metadata.labels"]]})
    code, _, err = said(capsys, "up", STACK)
    assert (code, "kubectl-label has set .metadata.labels" in err) == (2, True)
    assert said(capsys, "up", STACK, "--force-conflicts")[0] == 0


@pytest.fixture
def bindings(tmp_path: Path) -> Path:
    """Without them the volumes have no ids, and nothing that mounts one is awaited."""
    file = tmp_path / "bindings.json"
    file.write_text(dumps(BOUND))
    return file


def test_dry_run_of_the_first_waves(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], bindings: Path
) -> None:
    code, out, _ = said(capsys, "up", STACK, "--dry-run", "--through", "10-access")
    assert (code, out.splitlines()[-2].endswith(" -k 10-access")) == (0, True)
    code, out, _ = said(capsys, "up", STACK, "--dry-run", "--bindings", str(bindings))
    assert "   after the last wave it waits, at most 1800 s, until these are ready: 1 Deployment\n" in out


def test_up_with_a_service_that_waits(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], bindings: Path
) -> None:
    cluster.change(slow={"Deployment": 10000})
    words = ("up", STACK, "--bindings", str(bindings), "--timeout", "0")
    code, out, _ = said(capsys, *words)
    assert code == 2
    assert out.splitlines()[-2:] == [
        "not ready: serving/Deployment/chat: its controller has not seen it",
        "all else is applied; what a service waits for: gpucluster k8s why kube serving/chat",
    ]
    code, out, _ = said(capsys, *words, "-o", "json")
    assert (code, json.loads(out)["ok"]) == (2, False)


def test_up_of_the_first_waves_says_so(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "up", STACK, "--through", "10-access")
    assert code == 0
    assert out.startswith("kube up to 10-access is applied to arn:aws:eks:")
    assert out.endswith("waves applied: 2\n")


def test_lines_of_an_up() -> None:
    done = Applied(
        ("kueue",),
        ("00-namespaces",),
        ("a/Role/b",),
        ("Namespace/gone",),
        ("serving/Deployment/x is not there",),
    )
    assert list(up_lines(done, "kube", "here", None)) == [
        "kube is applied to here: charts changed: kueue; waves applied: 1",
        "deleted: a/Role/b",
        "not in the spec, and left there: Namespace/gone",
        "not ready: serving/Deployment/x is not there",
        "all else is applied; what a service waits for: gpucluster k8s why kube serving/x",
    ]
