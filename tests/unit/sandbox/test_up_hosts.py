"""`sandbox up` of existing hosts, without its machines."""

from pathlib import Path

import pytest
from support.builders import a_lab_plan

from gpucluster.sandbox import host_checks, up_hosts
from gpucluster.sandbox.host_checks import CgroupMode, Host
from gpucluster.sandbox.state_dir import SandboxDir


def test_spec_of_a_sandbox_of_hosts_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: `validate` reads it for accepted warnings, and ended with 2 on each sandbox of hosts."""
    found: list[Path] = []

    def no_image(*_: object, **__: object) -> None:
        found.append(SandboxDir(name="lab", root=tmp_path).spec)
        raise RuntimeError("no image")

    monkeypatch.setattr(host_checks, "observe", lambda _: None)
    monkeypatch.setattr(host_checks, "check", lambda _: Host(cgroup=CgroupMode.HYBRID, trees=(), machines=20))
    monkeypatch.setattr(up_hosts.bare, "find_or_build", no_image)
    file = tmp_path / "lab.yaml"
    with pytest.raises(RuntimeError):
        up_hosts.up(a_lab_plan(), file, progress=lambda _: None, root=tmp_path)
    assert found == [file]
