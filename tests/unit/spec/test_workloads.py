"""The models of workloads: pydantic and our decoder agree, every field has an update class, the committed schema is current."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import KUBE, WORKLOADS, a_kube_spec, changed

from gpucluster import catalog
from gpucluster.spec import ClusterSpec, UpdateClass, WorkloadsSpec, inspect_text, inspect_workloads_text
from gpucluster.spec.decode import decode
from gpucluster.spec.jsonschema import schema_text, workloads_text
from gpucluster.spec.part import Part
from gpucluster.spec.problem import Level
from gpucluster.spec.tree import plain
from gpucluster.spec.workloads import Replicas, ScaleOn, Serve, Topology, Train
from gpucluster.spec.yaml import parse

ROOT = Path(__file__).parents[3]
CLUSTER = a_kube_spec()


def test_committed_schema_is_the_models(request: pytest.FixtureRequest) -> None:
    committed = ROOT / "schema/workloads.json"
    if request.config.getoption("--update-golden"):
        committed.write_text(workloads_text())
    assert committed.read_text() == workloads_text(), "run: make golden"


def test_schema_is_draft_07_and_takes_the_shipped_files() -> None:
    schema = json.loads(workloads_text())
    jsonschema.Draft7Validator.check_schema(schema)
    for file in (ROOT / "workloads").glob("*.yaml"):
        jsonschema.Draft7Validator(schema).validate(plain(parse(file.read_text()).root))
        first = file.read_text().splitlines()[0]
        assert (file.parent / first.partition("$schema=")[2]).resolve() == ROOT / "schema/workloads.json"


@pytest.mark.parametrize("model", [WorkloadsSpec, Serve, Train, Replicas, ScaleOn, Topology])
def test_every_field_has_an_update_class_and_a_description(model: type[Part]) -> None:
    for name, info in model.model_fields.items():
        extra: Any = info.json_schema_extra
        assert UpdateClass(extra["x-update-class"]), name
        assert info.description, name


CHANGES = [
    ("cluster: kube", "cluster: K"),
    ("mig-1g.10gb: 1", "mig-1g.10gb: one"),
    ("mig-1g.10gb: 1", "mig-1g.10gb: 1, cpu: 500m"),
    ("min: 2", "min: 0"),
    ("gpus_per_node: 8", "gpus_per_node: 8\n    restarts: 0"),
    ("gpus_per_node: 8", "gpus_per_node: 8\n    args: [a, -b, 'c d']"),
    ("gpus_per_node: 8", "gpus_per_node: 8\n    args: []"),
    ("    topology: {required: block}\n", ""),
    ("team: research", "team: default"),
]


@given(st.sets(st.sampled_from(range(len(CHANGES))), max_size=3))
def test_pydantic_and_the_decoder_agree(chosen: set[int]) -> None:
    """The same values pass or fail in both, and give the same spec."""
    try:
        text = changed(WORKLOADS, *(CHANGES[i] for i in sorted(chosen)))
    except ValueError:
        return  # two changes of one line
    tree = parse(text)
    decoded, findings = decode(WorkloadsSpec, tree.root)
    try:
        built = WorkloadsSpec.model_validate(plain(tree.root))
    except pydantic.ValidationError:
        assert findings
    else:
        assert (findings, decoded) == ([], built)


def _paths(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: list[tuple[str | int, object]] = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [at, *(path for key, item in inner for path in _paths(item, (*at, key)))]


SCHEMA = {
    "workloads": jsonschema.Draft7Validator(json.loads(workloads_text())),
    "cluster": jsonschema.Draft7Validator(json.loads(schema_text(catalog.load()))),
}
PLAIN = {"workloads": plain(parse(WORKLOADS).root), "cluster": plain(parse(KUBE).root)}
PLACES = [(kind, path) for kind, tree in PLAIN.items() for path in _paths(tree)[1:]]
ODD = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        3,
        1.5,
        "",
        "x",
        "5m",
        "16Gi",
        "1g.10gb",
        "eks",
        [],
        ["x"],
        {},
        {"x": 1},
        {"x": "1Gi"},
    ]
)


@given(st.sampled_from(PLACES), ODD, st.sampled_from(["set", "drop", "add"]))
def test_values_that_the_schema_refuses_fail_the_check(
    place: tuple[str, tuple[str | int, ...]], odd: object, how: str
) -> None:
    """An editor must not mark a valid file, and no rule raises for a valid file."""
    kind, path = place
    values: Any = copy.deepcopy(PLAIN[kind])
    holder = values
    for key in path[:-1]:
        holder = holder[key]
    if how == "set":
        holder[path[-1]] = odd
    elif how == "drop":
        del holder[path[-1]]
    elif isinstance(holder, dict):
        holder["strange"] = odd
    text = json.dumps(values)
    if kind == "cluster":
        errors = inspect_text(text, "s.yaml", catalog.load()).errors
    else:
        errors = inspect_workloads_text(text, "w.yaml", CLUSTER, catalog.load()).errors
    if not errors:
        SCHEMA[kind].validate(values)


def test_cluster_with_both_orchestrators_passes() -> None:
    text = changed(
        KUBE,
        ("storage:\n  - {mount: /data, fsx_lustre: {zone: us-west-2a, size: 2400GiB}}\n", ""),
        (
            "pools:\n",
            'slurm: {version: "26.05"}\nhead: {machine: m7i.xlarge, state: 8GiB}\naccess: {ssm: true}\npartitions: [{name: gpu, pools: [old]}]\npools:\n'
            "  - {name: old, runs: slurm, nodes: 2, capacity: [{from: on-demand, machines: [p4d.24xlarge]}]}\n",
        ),
        ("    nodes: 4\n", "    nodes: 4\n    runs: kubernetes\n"),
        ("    nodes: {min: 1, max: 6}\n", "    nodes: {min: 1, max: 6}\n    runs: kubernetes\n"),
    )
    report = inspect_text(text, "both.yaml", catalog.load())
    assert report.problems == ()
    assert isinstance(report.spec, ClusterSpec)


def test_checkpoint_as_long_as_a_spot_notice_is_complete_in_time() -> None:
    """EC2's notice is two minutes before the end."""
    on_spot = a_kube_spec(("from: on-demand", "from: spot"))

    def warned(takes: str) -> bool:
        text = changed(
            WORKLOADS,
            ("topology: {required: block}", f"checkpoint: {{mount: /data, signal: USR1, takes: {takes}}}"),
        )
        found = inspect_workloads_text(text, "workloads.yaml", on_spot, catalog.load()).problems
        assert not [one for one in found if one.level is Level.ERROR], found
        return "checkpoint-above-notice" in {one.id for one in found}

    assert (warned("120s"), warned("121s")) == (False, True)


def test_literal_token_in_the_command_of_workers_is_refused() -> None:
    """It passed, and `command` beside it did not."""
    token = "--token=hf_abcdefghijklmnopqrstuvwx"
    text = changed(
        WORKLOADS,
        ("team: serving", "team: research"),
        (
            "{nvidia.com/mig-1g.10gb: 1}",
            f"{{nvidia.com/gpu: 8}}\n    nodes: 2\n    worker_command: [serve, {token}]",
        ),
    )
    found = inspect_workloads_text(text, "workloads.yaml", a_kube_spec(), catalog.load()).problems
    assert ("serve[chat].worker_command[1]", "literal-secret") in {(one.path, one.id) for one in found}


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("env", "{PGPASSWORD: hunter2hunter2}", True),
        ("env", "{DB_PASSWORD: 'p@ss w0rd!'}", True),
        ("env", "{MYSQL_PASS: hunter2}", True),
        ("env", "{DATABASE_URL: 'postgresql://ml:hunter2@db/runs'}", True),
        ("env", "{NETRC: 'machine api.wandb.ai login user password 0123456789'}", True),
        ("args", "['--api-key=hunter2hunter2']", True),
        ("command", "[serve, 'redis://:hunter2@cache:6379']", True),
        ("env", "{PGPASSWORD: $(FROM_A_SECRET)}", False),
        ("env", "{DB_PASSWORD: /run/secrets/db}", False),
        ("env", "{DATABASE_URL: 'postgresql://ml:$(PASSWORD)@db/runs'}", False),
        ("env", "{PAD_TOKEN: '[PAD]', EOS_TOKEN: </s>, MAX_TOKENS: '4096'}", False),
        ("env", "{BYPASS: everything}", False),
        ("args", "['--api-key=$(API_KEY)', '--password-file=/run/secrets/db']", False),
        ("args", "['https://example.org:8080/@v1']", False),
    ],
)
def test_literal_secrets_are_refused_in_the_forms_that_lint_knows(
    key: str, value: str, refused: bool
) -> None:
    """`check` passed passwords with `@` or without `_`, options and addresses, and `lint` warned of the manifest."""
    written = changed(WORKLOADS, ("topology: {required: block}", f"{key}: {value}"))
    found = inspect_workloads_text(written, "workloads.yaml", a_kube_spec(), catalog.load()).problems
    assert ("literal-secret" in {one.id for one in found}) is refused


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("$$", True),
        ("a$$b", True),
        ("$${HOME}", True),
        ("$$(NAME)", False),
        ("$$$$", False),
        ("$HOME", False),
        ("$(NAME)", False),
    ],
)
def test_dollars_that_kubernetes_halves(text: str, changes: bool) -> None:
    """expand.go of Kubernetes v1.36.2 leaves one `$` of `$$`, in variables, arguments and commands."""
    written = changed(WORKLOADS, ("topology: {required: block}", f"args: ['{text}']"))
    found = inspect_workloads_text(written, "workloads.yaml", a_kube_spec(), catalog.load()).problems
    assert ("train[tune].args[0]" in {one.path for one in found if one.id == "doubled-dollar"}) is changes


def test_checkpoint_leaves_a_gang_some_of_kueues_time_to_start() -> None:
    """Kueue evicts a gang that is not ready in 30 minutes. The pods before it end 30 s after their checkpoint."""

    def warned(takes: str) -> bool:
        checkpoint = f"checkpoint: {{mount: /data, takes: {takes}}}"
        text = changed(WORKLOADS, ("topology: {required: block}", checkpoint))
        found = inspect_workloads_text(text, "workloads.yaml", a_kube_spec(), catalog.load()).problems
        return "checkpoint-above-queue" in {one.id for one in found}

    assert (warned("1769s"), warned("1770s")) == (False, True)
