"""`sandbox preview` reads the spec of the sandbox as it is now. It compared the plan of the `up`, so an edit was "no change"."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.builders import a_plan

from gpucluster.engine import run
from gpucluster.errors import StateError
from gpucluster.plan.model import ClusterPlan
from gpucluster.plan.spec_source import SpecSource, plan_digest
from gpucluster.sandbox import host_checks, preview, state_dir
from gpucluster.sandbox.state_dir import SandboxDir


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SandboxDir:
    made = SandboxDir(name="burst", root=tmp_path)
    made.path.mkdir(parents=True)
    (tmp_path / "burst.yaml").write_text("name: burst\n")
    made.begin(a_plan(), tmp_path / "burst.yaml", real_times=True)
    monkeypatch.setattr(host_checks, "require_root", lambda: None)
    monkeypatch.setattr(state_dir, "living", lambda name, root: made)
    monkeypatch.setattr(SandboxDir, "target", lambda self, pulumi: pulumi)
    monkeypatch.setattr(preview.engine, "find_or_build", lambda progress: "pulumi")
    return made


def declared(
    home: SandboxDir, plan_of: Callable[[Path], ClusterPlan], monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    """The plans that the program declares."""
    found: list[Any] = []

    def program(plan: ClusterPlan, source: SpecSource) -> None:
        assert source.plan == plan_digest(plan_of(home.spec)), (
            "of the spec, without the sandbox's differences"
        )
        found.append(plan)

    def engine(target: Any, run_program: Callable[[], None]) -> Any:
        run_program()
        return SimpleNamespace(changes=())

    monkeypatch.setattr(run, "preview", engine)
    preview.preview(
        home.name, refresh=False, plan_of=plan_of, program=program, progress=print, root=home.root
    )
    return found


def test_preview_declares_the_spec_as_it_is_now(home: SandboxDir, monkeypatch: pytest.MonkeyPatch) -> None:
    edited, read = a_plan(("max: 16", "max: 12")), list[Path]()

    def plan_of(spec: Path) -> ClusterPlan:
        read.append(spec)
        return edited

    (plan,) = declared(home, plan_of, monkeypatch)
    assert set(read) == {home.root / "burst.yaml"}
    assert plan.pools == edited.pools
    assert plan.slurm.lines, "without the sandbox's differences every file changes"


def test_spec_of_another_name_is_another_cluster(home: SandboxDir, monkeypatch: pytest.MonkeyPatch) -> None:
    other = a_plan(("name: burst", "name: other"))
    with pytest.raises(StateError, match="has the name 'other' now"):
        declared(home, lambda _: other, monkeypatch)


def test_sandbox_of_hosts_has_no_resources_of_pulumi(
    home: SandboxDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.site.mkdir()
    with pytest.raises(StateError, match="is a sandbox of hosts"):
        declared(home, lambda _: a_plan(), monkeypatch)
