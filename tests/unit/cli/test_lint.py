"""`gpucluster lint`: files and folders, text and JSON, exit codes."""

import io
import json
from pathlib import Path

import pytest

from gpucluster.cli import main as program

GOOD = Path(__file__).parents[1] / "k8s/good.yaml"
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"
BAD = "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: a}\nspec:\n  prots: []\n  ports: [{port: 80}]\n"


def run(*argv: object) -> int:
    return program.run(["lint", *map(str, argv)])


def test_good_manifests_pass_and_skipped_checks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(GOOD, "--kubernetes", "1.36") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].startswith("not checked: quotas, labels, taints and sizes")
    assert out.endswith("29 documents for Kubernetes 1.36: 0 errors, 0 warnings\n")
    assert err == ""


def test_error_is_located_and_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(f"{NAMESPACE}---\n{BAD}")
    assert run(tmp_path) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        f"{tmp_path}/a.yaml:9: error[unknown-field]: Service a/a spec.prots: "
        "no field of that name: 'prots'; did you mean 'ports'?"
    )


def test_folder_is_read_without_hidden_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub/ns.yml").write_text(NAMESPACE)
    (tmp_path / "values.yaml").write_text("driver: {enabled: false}\n")
    (tmp_path / "service.json").write_text('{"apiVersion": "v1", "kind": "Service"}')
    (tmp_path / ".git/x.yaml").write_text("not: read\nnot: read\n")
    (tmp_path / "notes.txt").write_text("kind: nothing\n")
    assert run(tmp_path, "-o", "json") == 1
    got = json.loads(capsys.readouterr().out)
    assert {finding["rule"] for finding in got["findings"]} == {"name"}
    assert f"{tmp_path}/values.yaml: document 1 is not a manifest" in got["unchecked"]
    assert (got["ok"], got["documents"]) == (False, 2)


def test_file_that_is_named_must_hold_manifests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "values.yaml").write_text("driver: {enabled: false}\n")
    assert run(tmp_path / "values.yaml") == 1
    assert "error[shape]: a manifest has apiVersion and kind as text" in capsys.readouterr().out


def test_kind_without_a_schema_is_named_and_does_not_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: a}\n")
    assert run(tmp_path) == 0
    out = capsys.readouterr().out.splitlines()
    assert "not checked: Thing (example.org/v1): its fields, except those of its pods: needs its CustomResourceDefinition, with --schemas" in out  # fmt: skip
    assert out[-1].endswith(": 0 errors, 0 warnings")


DEFINITION = """apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec:
  group: example.org
  scope: Cluster
  names: {kind: Thing, plural: things, singular: thing}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
"""
THING = "apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: a}\nspec: {siz: 1}\n"


@pytest.mark.parametrize("place", ["crd.yaml", "."])
def test_given_definitions_are_schemas(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds/crd.yaml").write_text(DEFINITION)
    (tmp_path / "a.yaml").write_text(THING)
    assert run(tmp_path / "a.yaml", "--schemas", tmp_path / "crds" / place) == 1
    out = capsys.readouterr().out
    assert (
        "a.yaml:4: error[unknown-field]: Thing a spec.siz: no field of that name: 'siz'; did you mean 'size'?"
        in out
    )
    assert "--schemas" not in out


def test_definition_among_the_manifests_is_a_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(f"{THING}---\n{DEFINITION}")
    assert run(tmp_path / "a.yaml") == 1
    assert "error[unknown-field]: Thing a spec.siz" in capsys.readouterr().out


def test_schemas_without_a_definition_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(NAMESPACE)
    assert run(tmp_path / "a.yaml", "--schemas", tmp_path / "a.yaml") == 2
    assert capsys.readouterr().err.startswith(
        f"error: --schemas {tmp_path}/a.yaml: no CustomResourceDefinition of"
    )


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{NAMESPACE}---\n{BAD}".encode())))
    assert run("-") == 1
    assert capsys.readouterr().out.startswith("stdin:9: error[unknown-field]: Service a/a spec.prots: ")


PART = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 2}\n"


@pytest.mark.parametrize(
    ("file", "text", "kustomization"),
    [
        ("replicas.yaml", PART, "patches: [{path: replicas.yaml}]"),
        ("over/replicas.yaml", PART, "patchesStrategicMerge: [over/replicas.yaml]"),
        ("replicas_patch.yaml", PART, ""),
        ("patches/replicas.yaml", PART, ""),
        ("replicas.yaml", PART.replace("replicas: 2", "$patch: replace"), ""),
    ],
)
def test_patch_is_not_checked_as_an_object(
    file: str, text: str, kustomization: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    if kustomization:
        head = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        (tmp_path / "kustomization.yaml").write_text(f"{head}{kustomization}\n")
    for path in (tmp_path / file, tmp_path):
        assert run(path) == 0
        sentence = f"not checked: {tmp_path}/{file}: document 1 is a patch of Kustomize: it holds a part of an object"
        assert sentence in capsys.readouterr().out.splitlines()


def test_file_that_no_kustomization_names_as_a_patch_is_an_object(tmp_path: Path) -> None:
    (tmp_path / "replicas.yaml").write_text(PART)
    (tmp_path / "kustomization.yaml").write_text("kind: Kustomization\nresources: [replicas.yaml]\n")
    assert run(tmp_path / "replicas.yaml") == 1


@pytest.mark.parametrize("is_folder", [True, False])
def test_chart_and_its_templates_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_folder: bool
) -> None:
    """Programs such as pre-commit name each file."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: a\nversion: 1.0.0\n")
    (tmp_path / "templates/a.yaml").write_text("{{- if .Values.a }}\nkind: Service\n{{- end }}\n")
    files = [tmp_path / "Chart.yaml", tmp_path / "templates/a.yaml"]
    assert run(*([tmp_path] if is_folder else files)) == 0
    out = capsys.readouterr().out
    assert f"not checked: {tmp_path}/Chart.yaml: document 1 is not a manifest" in out
    assert (
        f"not checked: {tmp_path}/templates/a.yaml: a template of a Helm chart; `helm template` renders it"
        in out
    )


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("eksctl.io/v1alpha5", "ClusterConfig"),
        ("kind.x-k8s.io/v1alpha4", "Cluster"),
        ("config.kueue.x-k8s.io/v1beta2", "Configuration"),
        ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"),
        ("builtin", "PrefixSuffixTransformer"),
        ("v1", "Config"),
    ],
)
def test_file_of_a_client_is_named_and_not_checked(
    api_version: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(
        f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{region: us-west-2}}\n"
    )
    assert run(tmp_path / "a.yaml") == 0
    out = capsys.readouterr().out
    assert f"not checked: {kind} ({api_version}): only clients and daemons read it" in out
    assert out.endswith(": 0 errors, 0 warnings\n")


def test_control_characters_of_manifests_are_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(NAMESPACE.replace("{name: a}", '{name: "\\e[31m\\n"}'))
    assert run(tmp_path) == 1
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("none.yaml",), "none.yaml: No such file or directory"),
        (("--kubernetes", "1.20", "."), "--kubernetes 1.20: the catalog has facts of 1.34, 1.35, 1.36, 1.37"),
        (("empty",), "empty has no .yaml, .yml or .json file"),
        (("binary.yaml",), "binary.yaml: it is not UTF-8"),
    ],
)
def test_lint_that_cannot_run_exits_2(
    argv: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    assert run(*argv) == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", f"error: {message}")


def test_spec_without_kubernetes_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    burst = Path(__file__).parents[3] / "stacks/burst.yaml"
    assert run(GOOD, "--spec", burst, "-o", "json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"].endswith("has no `kubernetes:`")


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ("[ns.yaml, sub]", None),
        ("[ns.yaml, sub, more.yaml]", "there is no 'more.yaml'"),
        ("[sub]", "'ns.yaml' is not listed"),
        ("[ns.yaml, sub, https://example.org/x]", None),
    ],
)
def test_kustomization_lists_the_files_beside_it(
    resources: str, message: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "ns.yaml").write_text(NAMESPACE)
    (tmp_path / "sub/ns.yaml").write_text(NAMESPACE.replace("a}", "b}"))
    (tmp_path / "kustomization.yaml").write_text(
        f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: {resources}\n"
    )
    assert run(tmp_path, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []
    assert run(tmp_path, "--whole", "-o", "json") == (1 if message else 0)
    found = [finding["message"] for finding in json.loads(capsys.readouterr().out)["findings"]]
    assert found == ([message] if message else [])


def test_rendered_folder_passes_and_plan_json_is_not_a_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: the plan has a `kind`, so `lint` read it as a manifest without `apiVersion`."""
    spec = Path(__file__).parents[3] / "stacks/kube.yaml"
    assert program.run(["render", str(spec), "--to", str(tmp_path)]) == 0
    (tmp_path / "k8s/MISSING.md").unlink(missing_ok=True)
    assert (tmp_path / "plan.json").exists()
    assert run(tmp_path, "--spec", spec) == 0, capsys.readouterr().out


def test_files_that_grafana_reads_are_no_manifests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their `apiVersion: 1` was an error of a manifest without a kind."""
    (tmp_path / "alerts.yaml").write_text("apiVersion: 1\ngroups: [{name: a, orgId: 1}]\n")
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n")
    assert run(tmp_path) == 0
    assert f"not checked: {tmp_path}/alerts.yaml: document 1 is not a manifest" in capsys.readouterr().out
