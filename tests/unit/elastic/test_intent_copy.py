"""Orders and money outlive the journal: over the models, with a lost journal, a lost bucket, and both."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_plan
from support.fleet import Fleet

from gpucluster.cloud.bundle_status import Published
from gpucluster.elastic import intent, spool
from gpucluster.elastic.events import Verb
from gpucluster.elastic.inspect import losses
from gpucluster.elastic.inspect.overview import overview, text
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import Cause, why
from gpucluster.elastic.intent_copy import AGAIN_S, SPEND_S


@pytest.fixture(params=("24.11", "26.05"))
def f(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    plan = a_plan()
    pools = tuple(
        replace(pool, templates=tuple(replace(one, price=3_600_000) for one in pool.templates))
        for pool in plan.pools
    )
    return Fleet(replace(plan, pools=pools), tmp_path, version=request.param)


def order(f: Fleet, verb: Verb, target: str = "h200") -> None:
    given = spool.SpooledOrder(
        kind=spool.ORDER, verb=verb, target=target, by="ada", words="", until=None, now=False, time=f.now
    )
    spool.put(f.folder / "spool", given, f"{int(f.now)}.{verb.value}.{spool.ORDER}")
    f.look()


def lose_journal(f: Fleet) -> None:
    f.journal.close()
    for path in f.folder.glob("journal.sqlite*"):
        path.unlink()
    f.start()


def seen(f: Fleet) -> ClusterSnapshot:
    memory, status = f.journal.memory, f.reconciler.status
    return ClusterSnapshot(
        plan=f.plan,
        bindings=f.bindings,
        observation=f.reconciler.observation,
        memory=memory,
        now=f.now,
        copy=status.copy,
    )


def shown(f: Fleet) -> str:
    return text(overview(seen(f), "1", Published(bundle="1", ready=True)), f.now)


def test_pause_outlives_the_journal(f: Fleet) -> None:
    """The printed remedy dropped each pause: a job ran on a paused pool within seconds."""
    order(f, Verb.POOL_PAUSE)
    lose_journal(f)
    job = f.slurm.submit(1)
    f.run(300)
    assert job.state == "PENDING"
    assert not f.living()
    order(f, Verb.POOL_RESUME)
    f.until(lambda: job.state == "RUNNING", 300)


def backup(f: Fleet) -> dict[str, bytes]:
    """Return the journal's files; the daemon is restarted for it."""
    f.journal.close()
    files = {path.name: path.read_bytes() for path in f.folder.glob("journal.sqlite*")}
    f.start()
    return files


def restore(f: Fleet, files: dict[str, bytes]) -> None:
    f.journal.close()
    for path in f.folder.glob("journal.sqlite*"):
        path.unlink()
    for name, body in files.items():
        (f.folder / name).write_bytes(body)
    f.start()


def test_journal_of_yesterday_launches_nothing_before_it_has_the_orders_of_today(f: Fleet) -> None:
    """One failed read of the copy at the start was enough: it launched on the paused pool."""
    yesterday = backup(f)
    order(f, Verb.POOL_PAUSE)
    f.orders.readable = False
    restore(f, yesterday)
    job = f.slurm.submit(1)
    f.run(60)
    assert not f.living()
    assert "it cannot be read: SlowDown" in shown(f)
    f.orders.readable = True
    f.run(60)
    assert not f.living()
    assert "it cannot be read" not in shown(f)
    order(f, Verb.POOL_RESUME)
    f.until(lambda: job.state == "RUNNING", 300)


def test_journal_of_yesterday_uses_no_token_of_today_again(f: Fleet) -> None:
    """EC2 refused the first launch after a restore: its token was used, for other values or for ended instances."""
    yesterday = backup(f)
    first = f.slurm.submit(1, lasts=60)
    f.until(lambda: first.state == "COMPLETED" and not f.living())
    restore(f, yesterday)
    second = f.slurm.submit(1)
    f.until(lambda: second.state == "RUNNING", 300)
    tokens = [spec.token for spec in f.cloud.launches]
    assert len(tokens) == len(set(tokens)) == 2


def test_spend_outlives_the_journal(f: Fleet) -> None:
    job = f.slurm.submit(1, lasts=1500)
    f.until(lambda: job.state == "RUNNING")
    f.run(SPEND_S * 2)
    copied = intent.decode(f.orders.body or b"").spent
    (month,) = copied
    assert copied[month] > 0
    lose_journal(f)
    f.run(60)
    assert intent.intent_of(f.journal.memory, f.now).spent[month] >= copied[month]


def test_journal_and_copy_lost_launch_nothing_until_an_operator_confirms(f: Fleet) -> None:
    """With both lost the daemon began as if nobody had ever ordered anything."""
    order(f, Verb.POOL_PAUSE)
    f.orders.body = None
    lose_journal(f)
    job = f.slurm.submit(1)
    f.run(300)
    assert not f.living()
    assert f.orders.body is None, "an empty copy would look as if nothing was lost"
    screen = why(seen(f), str(job.id))
    assert screen.cause is Cause.HALTED
    assert "gpucluster pool confirm" in str(screen)
    told = shown(f)
    assert "pauses and drains of pools" in told
    assert "there is no copy" in told
    f.restart()
    f.run(60)
    assert not f.living(), "a restart confirms nothing"
    order(f, Verb.ORDERS_CONFIRM, "all")
    f.until(lambda: job.state == "RUNNING", 300)
    assert f.orders.body is not None
    assert "pauses and drains" not in shown(f)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda f: setattr(f.orders, "readable", False), "it cannot be read: SlowDown"),
        (lambda f: f.orders.put(b"{"), "it cannot be read: Expecting"),
        (lambda f: f.orders.put(b"{}"), "it cannot be read: Intent without budget"),
        (lambda f: setattr(f.orders, "body", None), "there is no copy"),
    ],
)
def test_copy_that_cannot_be_read_is_no_empty_copy(
    f: Fleet, break_it: Callable[[Fleet], None], words: str
) -> None:
    """A copy that a person restored from an old version was read only after a restart."""
    order(f, Verb.POOL_PAUSE)
    good = f.orders.body
    assert good
    break_it(f)
    lose_journal(f)
    f.slurm.submit(1)
    f.run(300)
    assert not f.living()
    assert words in shown(f)
    f.orders.readable = True
    f.orders.put(good)
    f.run(AGAIN_S * 3)
    assert f.journal.memory.unrestored_since is None
    assert f.journal.memory.orders.keys() == {"h200"}


def test_broken_copy_is_put_right_by_a_daemon_with_a_journal(f: Fleet) -> None:
    order(f, Verb.POOL_PAUSE)
    f.orders.put(b"{")
    f.restart()
    f.run(60)
    assert intent.decode(f.orders.body or b"").orders[0].verb is Verb.POOL_PAUSE


def test_status_says_not_copied_yet_until_it_is(f: Fleet) -> None:
    assert "not copied" not in shown(f)
    f.orders.readable = False
    order(f, Verb.POOL_PAUSE)
    f.run(60)
    assert f.journal.memory.orders
    assert "not copied yet" in shown(f)
    assert "SlowDown" in shown(f)
    f.orders.readable = True
    f.run(60)
    assert "not copied" not in shown(f)


def test_unreadable_bucket_delays_no_launch(f: Fleet) -> None:
    f.orders.readable = False
    job = f.slurm.submit(1)
    f.until(lambda: job.state == "RUNNING", 200)


def test_copy_of_another_daemon_is_merged_and_not_overwritten(f: Fleet) -> None:
    """Two writers: the version that was read is named, so neither loses the other's order."""
    order(f, Verb.POOL_PAUSE)
    copy = intent.decode(f.orders.body or b"")
    newer = replace(copy.orders[0], verb=None, stamp=replace(copy.orders[0].stamp, sequence=99))
    f.orders.put(intent.encode(replace(copy, orders=(newer,))))
    order(f, Verb.NODE_KEEP, "h200-2a-1")
    f.run(60)
    assert f.journal.memory.orders.keys() == {"h200-2a-1"}
    assert {o.target: o.verb for o in intent.decode(f.orders.body or b"").orders} == {
        "h200": None,
        "h200-2a-1": Verb.NODE_KEEP,
    }


def test_spend_alone_is_copied_at_most_each_ten_minutes(f: Fleet) -> None:
    job = f.slurm.submit(1, lasts=7000)
    f.until(lambda: job.state == "RUNNING")
    before = f.orders.writes
    f.run(SPEND_S * 6)
    assert 4 <= f.orders.writes - before <= 7


def test_daemon_without_the_lease_does_not_write(f: Fleet) -> None:
    class Lost:
        def held(self) -> bool:
            return False

        def cut_off(self) -> bool:
            return False

        def mine(self, control: object) -> bool:
            return False

    f.copy._lease = Lost()
    before = f.orders.writes
    order(f, Verb.POOL_PAUSE)
    f.run(60)
    assert f.orders.writes == before


def begin_anew(f: Fleet, *, first: bool) -> None:
    """Lose journal and control object. `first`: no version of the control object is left."""
    f.control.control = replace(f.control.control, epoch=0) if first else f.control.control
    f.lives = 0
    lose_journal(f)


def test_first_daemon_of_a_cluster_needs_no_confirmation(f: Fleet) -> None:
    """It launches once it knows that there is no copy."""
    assert not list(losses.sentences({}, f.now))
    assert f.journal.memory.unrestored_since is None
    f.orders.body, f.orders.readable = None, False
    begin_anew(f, first=True)
    job = f.slurm.submit(1)
    f.run(60)
    assert not f.living()
    f.orders.readable = True
    f.until(lambda: job.state == "RUNNING", 300)


def test_daemon_that_looks_like_the_first_takes_the_orders_of_the_copy(f: Fleet) -> None:
    """Control object and journal were lost: it launched on the paused pool, and a pause that was given then vanished later."""
    order(f, Verb.NODE_KEEP, "h200-2a-1")
    order(f, Verb.POOL_PAUSE)
    order(f, Verb.POOL_RESUME)
    f.orders.readable = False
    begin_anew(f, first=True)
    job = f.slurm.submit(1)
    order(f, Verb.POOL_PAUSE)
    f.run(60)
    f.orders.readable = True
    f.run(60)
    assert f.journal.memory.orders.keys() == {"h200", "h200-2a-1"}
    assert not f.living()
    order(f, Verb.POOL_RESUME)
    f.until(lambda: job.state == "RUNNING", 300)
