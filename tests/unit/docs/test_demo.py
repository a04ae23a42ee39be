"""The README's picture is drawn from the recorded run, and the recorded run has the stages that the daemon reports."""

import json
import runpy
from pathlib import Path

from gpucluster.elastic.inspect.timeline import BEGAN

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "docs" / "demo"
PICTURE = runpy.run_path(str(ROOT / "tools" / "demo" / "picture.py"))
REPORTED = {*BEGAN, "submitted", "power-up"}


def test_the_picture_is_current() -> None:
    recorded = json.loads((DEMO / "timeline.json").read_text())
    assert (DEMO / "timeline.svg").read_text() == PICTURE["svg"](recorded["stages"], recorded["title"])


def test_each_stage_is_an_event_of_the_timeline() -> None:
    assert list(json.loads((DEMO / "timeline.json").read_text())["stages"]) == list(PICTURE["STAGES"])
    assert set(PICTURE["STAGES"]) <= REPORTED


def test_spans_are_seconds_since_the_submission() -> None:
    events = [{"what": what, "at": 100.0 + i} for i, what in enumerate(PICTURE["STAGES"])]
    events.append({"what": "launched", "at": 110.0})
    assert PICTURE["spans"](events)["launched"] == (2.0, 10.0)
