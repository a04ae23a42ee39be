"""A test of NCCL for each pool: a gang of two whole nodes that no wave starts."""

import ast
from typing import Any

from support.builders import a_kube_plan
from support.kube import Change, files, objects

from gpucluster.k8s.lint import check
from gpucluster.k8s.lint.of_plan import facts
from gpucluster.k8s.lint.read import read

TEST: Change = (
    "serve:\n",
    "nccl_test: {team: research, image: registry.example.org/train:2.0, pull_secrets: [registry]}\nserve:\n",
)
PATH = "tests/nccl-test-tune.yaml"
MORE = (
    ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 56}"),
    ("  - name: serve\n", "  - {name: more, nodes: 2, capacity: [{from: on-demand, machines: [p4de.24xlarge]}]}\n  - {name: one, nodes: 1, capacity: [{from: on-demand, machines: [p4de.24xlarge]}]}\n  - name: serve\n"),
)  # fmt: skip


def _job() -> Any:
    return objects({PATH: files(running=(TEST,))[PATH]})["JobSet/research/nccl-test-tune"]


def _pod(jobset: Any) -> Any:
    return jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


def test_each_pool_with_room_for_two_whole_nodes_has_a_test() -> None:
    found = {path for path in files(*MORE, running=(TEST,)) if path.startswith("tests/")}
    assert found == {PATH, "tests/nccl-test-more.yaml"}
    assert not [path for path in files() if path.startswith("tests/")]


def test_no_wave_starts_it() -> None:
    texts = files(running=(TEST,))
    assert not [path for path, text in texts.items() if "kustomization" in path and "nccl" in text]
    assert "tests" not in texts["kustomization.yaml"]
    assert "`kubectl create -f tests/NAME.yaml`" in texts["README.md"]


def test_it_uses_what_gangs_of_the_pool_use() -> None:
    gang = objects(files())["JobSet/research/tune"]
    (mine,), (theirs,) = (_pod(one)["spec"]["containers"] for one in (_job(), gang))
    for key in ("resources", "securityContext", "volumeMounts"):
        assert mine[key] == theirs[key]
    job = _job()["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (job["parallelism"], _job()["spec"]["failurePolicy"]["maxRestarts"]) == (2, 0)
    labels = _job()["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "default"
    env = {one["name"]: one.get("value") for one in mine["env"]}
    assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == ("2", "8")
    assert env["MASTER_ADDR"] == "nccl-test-tune-node-0-0.nccl-test-tune"
    assert "NCCL_SOCKET_IFNAME" in env


def test_program_is_in_the_manifest_and_ends_with_an_error_for_wrong_sums() -> None:
    (container,) = _pod(_job())["spec"]["containers"]
    assert container["command"] == ["torchrun", "--no-python", "python3", "-c"]
    (program,) = container["args"]
    tree = ast.parse(program)
    last = tree.body[-1]
    assert isinstance(last, ast.If)
    assert ast.unparse(last.test) == "wrong"
    assert ast.unparse(last.body[0]).startswith("sys.exit(")


def test_lint_finds_nothing() -> None:
    texts = files(running=(TEST,))
    manifests = [path for path in texts if path.endswith(".yaml") and (path[0].isdigit() or path == PATH)]
    documents = [one for path in sorted(manifests) for one in read(texts[path], path).documents]
    assert check(documents, facts(a_kube_plan())) == ()
