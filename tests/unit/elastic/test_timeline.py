"""A job's story, as the demo draws it."""

import json
from pathlib import Path

import pytest
from builders import a_plan
from fleet import Fleet

from gpucluster.elastic import timeline
from gpucluster.elastic.journal import read_only


def test_a_job_has_every_stage_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    f = Fleet(a_plan(("idle: 5m", "idle: 1m")), tmp_path)
    other = f.slurm.submit(1, lasts=30)
    job = f.slurm.submit(2, lasts=30)
    f.until(lambda: job.state == "COMPLETED" and not f.living(), 1000)
    f.run(60)
    path = tmp_path / "journal.sqlite"
    moments = timeline.timeline(job.id, read_only(path))
    stages = (
        "submitted",
        "asked",
        "requested",
        "launched",
        "booted",
        "registered",
        "up",
        "running",
        "left",
        "idle",
        "gone",
    )
    first = [next(m.at for m in moments if m.what == stage) for stage in stages]
    assert first == sorted(first)
    assert {m.slot for m in moments if m.what == "gone"} == {m.slot for m in moments if m.what == "launched"}
    assert len([m for m in moments if m.what == "gone"]) == 2
    assert timeline.main([str(job.id), "--json", "--journal", str(path)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [m["what"] for m in shown] == [m.what for m in moments]
    assert timeline.main([str(other.id), "--journal", str(path)]) == 0
    assert "registered" in capsys.readouterr().out


def test_a_refusal_and_a_requeue_are_part_of_the_story(tmp_path: Path) -> None:
    f = Fleet(a_plan(), tmp_path)
    f.model.set_capacity(zone="us-east-2a", free=0)
    job = f.slurm.submit(2)
    f.until(lambda: job.state == "RUNNING", 400)
    f.run(5)
    what = [m.what for m in timeline.timeline(job.id, read_only(tmp_path / "journal.sqlite"))]
    assert what.count("refused") == 3
    assert what.count("placed") == 2
    assert what.count("submitted") == 1
    assert "running" in what
