"""`gpucluster lint`: files and folders, both forms of answer, and how it ends."""

import json
from pathlib import Path

import pytest

from gpucluster.cli import main as program

GOOD = Path(__file__).parents[1] / "k8s/good.yaml"
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"
BAD = "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: a}\nspec:\n  prots: []\n"


def run(*argv: object) -> int:
    return program.run(["lint", *map(str, argv)])


def test_good_manifests_pass_and_say_what_was_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(GOOD, "--kubernetes", "1.36") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].startswith("not checked: quotas, labels, taints and sizes")
    assert out.endswith("29 documents for Kubernetes 1.36: 0 errors, 0 warnings\n")
    assert err == ""


def test_an_error_is_located_and_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(f"{NAMESPACE}---\n{BAD}")
    assert run(tmp_path) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        f"{tmp_path}/a.yaml:9: error[unknown-field]: Service a/a spec.prots: "
        "no field of that name: 'prots'; did you mean 'ports'?"
    )


def test_a_folder_is_read_whole_but_for_what_is_hidden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert f"{tmp_path}/values.yaml: document 1 is no manifest" in got["unchecked"]
    assert (got["ok"], got["documents"]) == (False, 2)


def test_a_file_that_is_named_must_hold_manifests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "values.yaml").write_text("driver: {enabled: false}\n")
    assert run(tmp_path / "values.yaml") == 1
    assert "error[shape]: a manifest has apiVersion and kind as text" in capsys.readouterr().out


def test_a_warning_does_not_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: a}\n")
    assert run(tmp_path) == 0
    assert "warning[no-schema]: Thing default/a kind: no schema of example.org/v1 Thing is in the catalog" in capsys.readouterr().out  # fmt: skip


def test_what_others_wrote_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(NAMESPACE.replace("{name: a}", '{name: "\\e[31m\\n"}'))
    assert run(tmp_path) == 1
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("none.yaml",), "none.yaml: No such file or directory"),
        (("--kubernetes", "1.20", "."), "--kubernetes 1.20: there are facts of 1.34, 1.35, 1.36, 1.37"),
        (("empty",), "empty has no .yaml, .yml or .json file"),
        (("binary.yaml",), "binary.yaml: it is not UTF-8"),
    ],
)
def test_what_cannot_run_ends_with_2(
    argv: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    assert run(*argv) == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", f"error: {message}")


def test_a_spec_without_kubernetes_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    burst = Path(__file__).parents[3] / "stacks/burst.yaml"
    assert run(GOOD, "--spec", burst, "-o", "json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"].endswith("has no `kubernetes`")


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ("[ns.yaml, sub]", None),
        ("[ns.yaml, sub, more.yaml]", "there is no 'more.yaml'"),
        ("[sub]", "'ns.yaml' is not listed"),
        ("[ns.yaml, sub, https://example.org/x]", None),
    ],
)
def test_a_kustomization_lists_what_lies_beside_it(
    resources: str, message: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "ns.yaml").write_text(NAMESPACE)
    (tmp_path / "sub/ns.yaml").write_text(NAMESPACE.replace("a}", "b}"))
    (tmp_path / "kustomization.yaml").write_text(
        f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: {resources}\n"
    )
    assert run(tmp_path, "-o", "json") == (1 if message else 0)
    found = [finding["message"] for finding in json.loads(capsys.readouterr().out)["findings"]]
    assert found == ([message] if message else [])
