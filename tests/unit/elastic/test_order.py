"""Operators' orders: written whole, taken into the journal, refused with what there is."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_lab_plan, a_plan
from support.fleet import Fleet

from gpucluster.catalog.data_files import read_data
from gpucluster.elastic import order, spool
from gpucluster.elastic.abilities import Dependency, Loss
from gpucluster.elastic.decide import ordered_drains
from gpucluster.elastic.events import HookCalled, OrderGiven, Verb
from gpucluster.elastic.journal import read_only
from gpucluster.plan import codec, names
from gpucluster.plan.model import ClusterPlan
from gpucluster.slurm.drain_table import SLURM_USER
from gpucluster.slurm.drains import DrainOwner, drain_owner
from gpucluster.slurm.recorded import RECORDED
from gpucluster.text import short


def at(root: Path, plan: ClusterPlan | None = None) -> list[str]:
    """A head's folders below `root`, as the command line names them."""
    spool.prepare(root / "spool", 0.0)
    (root / names.PLAN_FILE).write_text(codec.dumps(plan or a_plan()))
    return [f"--bundle={root}", f"--spool={root / 'spool'}", f"--wake={root / 'wake'}"]


def give(*argv: str) -> int:
    """Without the wait for a daemon."""
    return order.main(argv, taken_s=0.0)


def test_order_reaches_the_journal_through_the_spool(tmp_path: Path) -> None:
    f = Fleet(a_plan(), tmp_path)
    options = at(tmp_path)
    assert give("pool-pause", "h200", "--because", "new driver", "--by", "alice", *options) == 0
    assert give("node-keep", "h200-2a-1", "--for", "3600", "--by", "bob", *options) == 0
    assert f.reconciler.read_spool()
    given = [e.event for e in read_only(tmp_path / "journal.sqlite") if isinstance(e.event, OrderGiven)]
    assert [(o.verb, o.target, o.by, o.words) for o in given] == [
        (Verb.POOL_PAUSE, "h200", "alice", "new driver"),
        (Verb.NODE_KEEP, "h200-2a-1", "bob", ""),
    ]
    assert given[1].until is not None
    assert f.journal.memory.orders["h200"].by == "alice"
    assert not f.reconciler.read_spool()


def test_drain_of_a_node_is_taken_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert give("node-drain", "h200-2a-1", "--because", "fan", *at(tmp_path)) == 0
    assert "takes no new jobs until a person lifts the drain" in capsys.readouterr().out


def test_order_that_the_daemon_cannot_carry_out_now_says_so() -> None:
    """With EC2 lost, `node drain` said that the node takes no new jobs."""
    lost = {Dependency.EC2: Loss(since=1.0, words="no")}
    assert order.postponed(Verb.NODE_DRAIN, lost) == ""
    assert order.postponed(Verb.NODE_UNDRAIN, lost) == "; not yet: the daemon cannot read EC2 now"
    assert order.postponed(Verb.POOL_PAUSE, lost) == ""
    over = {Dependency.LEASE: Loss(since=1.0, words="no")}
    assert order.postponed(Verb.NODE_DRAIN, over) == "; not yet: the daemon cannot renew the lease now"
    both = {**lost, Dependency.SLURMCTLD: Loss(since=1.0, words="")}
    assert order.postponed(Verb.NODE_DRAIN, both) == "; not yet: the daemon cannot read slurmctld now"
    assert (
        order.postponed(Verb.POOL_RESUME, both)
        == "; not yet: the daemon cannot read EC2 and cannot read slurmctld now"
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["node-drain", "h200-2a-1"], "node-drain needs --because: Slurm shows it as the reason"),
        (["node-drain", "h200-2a-1", "--because", "gpucluster: [foo] x"], "--because begins with 'gpucluster:', as the reasons of gpucluster itself: write other words"),
        (["node-drain", "h200-2a-1", "--because", " gpucluster:fan"], "--because begins with 'gpucluster:'"),
        (["pool-pause", "h100"], "there is no pool 'h100'; this cluster has h200"),
        (["node-keep", "h200"], "there is no node 'h200'; this cluster has h200-2a-[1-16],h200-2b-[1-16]"),
        (["node-keep", "h200-2a-01"], "there is no node 'h200-2a-01'"),
        (["node-keep", "h200-2a-1", "--for", "-1"], "not a valid time to keep a node"),
        (["node-keep", "h200-2a-1", "--for", "nan"], "not a valid time to keep a node"),
        (["pool-pause", "h200", "--for", "60"], "pool-pause takes no time"),
        (["node-keep", "h200-2a-1", "--now"], "node-keep takes no --now"),
        (["orders-confirm", "h200"], "orders-confirm takes 'all', not 'h200'"),
    ],
)  # fmt: skip
def test_invalid_order_is_refused_with_the_valid_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    options = at(tmp_path)
    assert give(*argv, *options) == 1
    assert words in capsys.readouterr().err
    assert not list((tmp_path / "spool" / "new").iterdir())
    assert give(*argv, "--json", *options) == 1
    assert words in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("version", RECORDED)
def test_reason_of_an_ordered_drain_is_a_persons(version: str) -> None:
    """Also in the words of Slurm's daemons: the name follows them."""
    own = [row["text"] for row in read_data(f"slurm-drains-{version}.json")["rows"]]
    for words in ("fan 3 is loud", '"gpucluster: [health] gone', *own):
        asked = order.OrderRequest(verb=Verb.NODE_DRAIN, target="h200-2a-1", words=words, by="ann")
        assert order.refusal(a_plan(), asked) == ""
        reason = ordered_drains.reason(words, "ann")
        assert drain_owner(reason, SLURM_USER, drained=True, version=version) is DrainOwner.PERSON, words


def test_confirmation_says_whether_orders_were_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    f = Fleet(a_plan(), tmp_path)
    options = [*at(tmp_path), "--journal", str(tmp_path / "journal.sqlite")]
    assert give("orders-confirm", "all", *options) == 0
    assert "there is nothing to confirm" in capsys.readouterr().out
    f.journal.close()
    (tmp_path / "journal.sqlite").unlink()
    f.orders.body = None
    f.start()
    assert f.journal.memory.unrestored_since is not None
    assert give("orders-confirm", "all", *options) == 0
    assert "pause pools and keep nodes anew" in capsys.readouterr().out
    assert f.reconciler.read_spool()
    assert f.journal.memory.unrestored_since is None


def test_order_needs_a_head_with_a_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert give("pool-pause", "h200", f"--bundle={tmp_path}") == 2
    assert "run it on the cluster's head" in capsys.readouterr().err
    assert give("node-keep", "gpu01", *at(tmp_path, a_lab_plan())) == 2
    assert "no daemon manages them" in capsys.readouterr().err
    assert give("pool-pause", "h200", *at(tmp_path), f"--spool={tmp_path / 'none'}") == 2
    assert "takes no order: No such file" in capsys.readouterr().err


DRAIN, BACK = (
    "scontrol update nodename={} state=drain reason=WORDS",
    "scontrol update nodename={} state=resume",
)


@pytest.mark.parametrize(
    ("argv", "step"),
    [
        (["pool-pause", "h100"], DRAIN.format("gpu[01-04]")),
        (["pool-drain", "h100"], DRAIN.format("gpu[01-04]")),
        (["pool-drain", "gpu01"], DRAIN.format("NODES")),
        (["pool-resume", "h100"], f"sinfo -R lists the drained nodes; {BACK.format('NODE')} returns one"),
        (["node-replace", "gpu01"], f"{DRAIN.format('gpu01')}; replace the machine when its jobs have ended; {BACK.format('gpu01')}"),
        (["node-keep", "gpu01"], "nothing: no daemon ends its machine"),
        (["node-release", "gpu01"], "nothing: no daemon ends its machine"),
        (["node-drain", "gpu01"], DRAIN.format("gpu01")),
        (["node-undrain", "gpu01"], "scontrol update nodename=gpu01 state=undrain"),
        (["orders-confirm", "all"], "nothing: without a daemon there are no orders"),
    ],
)  # fmt: skip
def test_existing_hosts_have_a_step_for_each_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], step: str
) -> None:
    """The step of `node undrain` was a drain, and that of `pool pause` named the pool as a node."""
    assert order.ON_HOSTS.keys() == set(Verb)
    assert give(*argv, *at(tmp_path, a_lab_plan())) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"  next: {step}"


def test_order_without_a_daemon_waits_in_the_spool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert give("pool-resume", "h200", *at(tmp_path)) == 0
    assert "h200 launches again; no daemon has read it yet" in capsys.readouterr().out
    (call,) = spool.read(tmp_path / "spool")
    assert isinstance(call.event, OrderGiven)


@pytest.mark.parametrize(
    ("verb", "empty", "full"),
    [
        ("node-keep", "launched for it during the order is kept", "keeps its instance, even after a failure"),
        ("node-replace", "there is nothing to replace", "gets another instance"),
        ("node-release", "is managed by the daemon again", "is managed by the daemon again"),
    ],
)
def test_order_for_a_node_without_an_instance_has_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, empty: str, full: str
) -> None:
    f = Fleet(a_plan(), tmp_path)
    options = [*at(tmp_path), f"--journal={tmp_path / 'journal.sqlite'}"]
    job = f.slurm.submit(1)
    f.until(lambda: job.state == "RUNNING", 400)
    (up,) = job.nodes
    assert give(verb, "h200-2b-9", *options) == 0
    assert empty in capsys.readouterr().out
    assert give(verb, up, *options) == 0
    assert full in capsys.readouterr().out


@given(words=st.text(max_size=400), by=st.text(max_size=90))
def test_text_of_an_order_is_one_short_printable_line(words: str, by: str) -> None:
    kept = short(words, order.WORDS)
    assert len(kept) <= order.WORDS
    assert all(c.isprintable() for c in kept)
    assert order.login({"SUDO_USER": by}) == (short(by, order.NAME) if by else order.login({}))


def test_invalid_order_file_is_moved_away(tmp_path: Path) -> None:
    spool.prepare(tmp_path, 0.0)
    for number, text in enumerate(
        ('{"kind": "order"}', '{"kind": "order", "verb": "rm -rf"', "[]", '{"kind": ["order"]}')
    ):
        (tmp_path / "new" / f"{number}.order").write_text(text)
    assert spool.read(tmp_path) == ()
    assert len(list((tmp_path / "broken").iterdir())) == 4


def test_hooks_and_orders_are_read_oldest_first(tmp_path: Path) -> None:
    spool.prepare(tmp_path, 0.0)
    one = spool.SpooledOrder(
        kind="order", verb=Verb.POOL_PAUSE, target="h200", by="a", words="", until=None, now=False, time=2.0
    )
    spool.put(tmp_path, one, "2.1.order")
    hook = {"kind": "resume", "hostlist": "a-1", "resume_file": None, "pid": 1, "time": 1.0}
    (tmp_path / "new" / "1.1.resume").write_text(json.dumps(hook))
    assert [type(c.event) for c in spool.read(tmp_path)] == [HookCalled, OrderGiven]
