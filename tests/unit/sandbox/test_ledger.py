"""Who lives is known by a lock; what a dead sandbox left is found and removed."""

import json
import os
from pathlib import Path

import pytest

from gpucluster.errors import StateError
from gpucluster.plan import codec
from gpucluster.sandbox import ledger
from gpucluster.sandbox.host import CgroupTree
from gpucluster.sandbox.ledger import Capsule, Home


@pytest.fixture
def home(tmp_path):
    return Home(name="one", root=tmp_path)


def test_a_name_is_held_by_one_until_its_holder_is_gone(home):
    first = ledger.claim(home)
    assert ledger.alive(home)
    with pytest.raises(StateError, match="a sandbox named 'one' is up, or on its way up or down"):
        ledger.claim(home)
    os.close(first)
    assert not ledger.alive(home)
    os.close(ledger.claim(home))


@pytest.mark.parametrize("name", ["..", ".", "", "/etc", "a/b", "../one", "One", "one\n"])
def test_what_is_no_name_never_becomes_a_folder_to_remove(tmp_path, name):
    """`gpucluster sandbox down ..` would have removed the folder above the state."""
    with pytest.raises(StateError, match="is not the name of a sandbox"):
        Home(name=name, root=tmp_path)


def test_two_names_live_side_by_side(tmp_path):
    locks = [ledger.claim(Home(name=name, root=tmp_path)) for name in ("one", "two")]
    assert [h.name for h in ledger.homes(tmp_path)] == ["one", "two"]
    for lock in locks:
        os.close(lock)


def test_a_lock_whose_file_was_removed_meanwhile_holds_nothing(home):
    first = ledger.claim(home)
    ledger.clean(home, ())
    second = ledger.claim(home)  # a new file: it must not wait for the old one
    assert ledger.alive(home)
    os.close(first)
    os.close(second)


def test_emptying_spares_the_lock_that_the_holder_goes_on_with(home):
    lock = ledger.claim(home)
    home.instances.mkdir()
    (home.instances / "i-1").write_text("disk")
    home.operator.write_text("{}")
    ledger.empty(home, ())
    assert [p.name for p in home.path.iterdir()] == ["lock"]
    assert ledger.alive(home)
    os.close(lock)


def test_cleaning_removes_files_and_empty_groups(home, tmp_path):
    tree = CgroupTree(mount=tmp_path / "cg", controllers=frozenset({"devices"}))
    v2 = CgroupTree(mount=tmp_path / "v2", controllers=frozenset())
    groups = [
        tree.mount / "gpc-one" / "i-1" / "payload",
        v2.mount / "gpc-one" / "i-1",
        v2.mount / "gpc-onemore",
    ]
    for group in (*groups, home.path):
        group.mkdir(parents=True)
    ledger.clean(home, (tree, v2))
    assert not home.path.exists()
    assert not (tree.mount / "gpc-one").exists()
    assert not (v2.mount / "gpc-one").exists()
    assert (v2.mount / "gpc-onemore").exists()


def test_a_torn_record_is_no_record(home):
    home.path.mkdir()
    home.capsule.write_text('{"init": 1, "star')
    assert home.read_capsule() is None


def test_a_pid_is_believed_only_with_its_start_time(home):
    """A PID is used again; killing by it alone would end a stranger."""
    lock = ledger.claim(home)
    stranger = Capsule(init=os.getpid(), started=1, port=1, layers=())
    home.capsule.write_text(codec.dumps(stranger))
    assert ledger.started_at(os.getpid()) not in (None, 1)
    with pytest.raises(StateError, match="still held by another command"):
        ledger.end(home, patience_s=0.05)
    os.close(lock)


def test_ending_what_is_dead_is_no_error(home):
    home.path.mkdir()
    ledger.end(home)


def test_there_is_no_start_time_of_a_process_that_is_not_there():
    assert ledger.started_at(2**22 + 1) is None


def test_what_tools_need_to_call_the_api_comes_from_two_files(home):
    home.path.mkdir()
    home.endpoint.write_text(json.dumps({"endpoint": "http://127.0.0.1:1", "region": "us-east-1"}))
    home.operator.write_text(json.dumps({"access_key": "AKIA", "secret": "s"}))
    assert home.environment() == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": "s",
    }


NOT_UP = {
    "a name that never was": (lambda home: None, ledger.existing, "there is no sandbox 'one'"),
    "one that died": (lambda home: home.path.mkdir(), ledger.living, "the sandbox 'one' is not up"),
}


@pytest.mark.parametrize(("make", "ask", "said"), NOT_UP.values(), ids=NOT_UP)
def test_a_verb_for_a_living_sandbox_says_what_it_found(home: Home, tmp_path: Path, make, ask, said):
    make(home)
    with pytest.raises(StateError, match=said) as refused:
        ask("one", tmp_path)
    assert (refused.value.next_step or "").startswith("gpucluster sandbox ")
