"""kubectl and helm that hang, or that are not there."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucluster.errors import HostError
from gpucluster.k8s_apply import kubectl, program
from gpucluster.k8s_apply.faults import HungError, RefusedError
from gpucluster.k8s_apply.helm import Helm
from gpucluster.k8s_apply.kubectl import Kubectl


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    "call",
    [
        lambda: Kubectl("here").version(),
        lambda: Kubectl("here").execute("research", "pod-1", ("/agnhost",), 0.05),
        lambda: program.run(("helm", "list"), install="install it", limit_s=0.05),
    ],
)
def test_program_that_hangs_is_ended_and_the_call_can_be_repeated(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]
) -> None:
    for name in ("kubectl", "helm"):
        (path / name).write_text(f"#!/bin/sh\nexec {shutil.which('sleep', path='/usr/bin:/bin')} 600\n")
        (path / name).chmod(0o755)
    monkeypatch.setattr(kubectl, "CALL_S", 0.05)
    with pytest.raises(HungError, match=r"(kubectl|helm): not done after 0.05 s"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        kubectl.kubeconfig,
        lambda: Kubectl("here").version(),
        lambda: Kubectl("here").find([("v1", "Pod")]),
        lambda: Kubectl("here").kinds(["kueue.x-k8s.io"]),
        lambda: Kubectl("here").create({"kind": "Lease"}),
        lambda: Helm("here", "kube").installed(),
    ],
)
@pytest.mark.parametrize("answer", ["welcome to the bastion", "<html></html>", '"x"', "7"])
def test_answer_that_is_no_json_is_told(path: Path, call: Callable[[], object], answer: str) -> None:
    """Regression: a program of another kind in PATH ended `up` with a traceback."""
    for name in ("kubectl", "helm"):
        (path / name).write_text(f"#!/bin/sh\necho '{answer}'\n")
        (path / name).chmod(0o755)
    with pytest.raises(
        RefusedError, match=r"it printed something other than JSON with a (mapping|list)"
    ) as found:
        call()
    assert "command -V" in str(found.value)


@pytest.mark.parametrize("server", ['{"major": "1", "minor": ""}', "null"])
def test_server_without_a_version_is_told(path: Path, server: str) -> None:
    (path / "kubectl").write_text(f"#!/bin/sh\necho '{{\"serverVersion\": {server}}}'\n")
    (path / "kubectl").chmod(0o755)
    with pytest.raises(RefusedError, match="the server says no version"):
        Kubectl("here").version()


@pytest.mark.parametrize(
    "call", [lambda: Kubectl("here").version(), lambda: Helm("here", "kube").installed()]
)
@pytest.mark.parametrize("setpriv", [True, False])
def test_program_that_is_not_there_is_named(path: Path, call: Callable[[], object], setpriv: bool) -> None:
    found = shutil.which("setpriv", path="/usr/bin:/bin")
    assert found is not None
    if setpriv:
        (path / "setpriv").symlink_to(found)
    with pytest.raises(HostError, match=r"there is no (kubectl|helm) in PATH"):
        call()
