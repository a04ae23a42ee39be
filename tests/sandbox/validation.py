"""`gpucluster validate` on a sandbox cluster, and the commands of its remedies, for tests."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from cluster import ROOT, USER, Cluster
from support import forked_cli
from support.waiting import BOUND_S

from gpucluster.cli.shell import SANDBOX
from gpucluster.engine.target import typed_environment
from gpucluster.plan import names
from gpucluster.sandbox import state_dir
from gpucluster.slurm.client import NOT_DELIVERED


def validated(cluster: Cluster, *options: str, code: int | None = None) -> dict[str, dict]:
    """Run `validate` and return its results by id, without those of agents that are `paused`."""
    argv = ("validate", cluster.name, "--output", "json", *options)
    done = forked_cli.run(argv, folder=ROOT, timeout=BOUND_S)
    answer = json.loads(done.stdout or "{}")
    assert "results" in answer, done.stdout + done.stderr
    results = {result["id"]: result for result in answer["results"]}
    for ident in _of_paused_agents(cluster, results):
        del results[ident]
    wrong = {ident: one["found"] for ident, one in results.items() if one["verdict"] != "pass"}
    assert code in (None, done.returncode), f"exit {done.returncode}: {wrong} {done.stderr}"
    assert answer["ok"] == (done.returncode == 0)
    return results


@contextmanager
def asked_by_ssm(cluster: Cluster, idents: Collection[str]) -> Iterator[Callable[[], dict[str, dict]]]:
    """Run `validate SPEC --only IDENTS` over Systems Manager, as on AWS, while the block runs.

    The function returns its results by id. The run is beside the block's own, because it mostly waits for AWS.
    """
    before = commands(cluster)
    home = state_dir.living(cluster.name)
    environment = {**typed_environment(home.target(Path("/usr/bin/pulumi"))), SANDBOX: cluster.name}
    asked = ("--tier", "0", "--user", USER, "--only", ",".join(sorted(idents)), "--output", "json")
    argv = ("validate", str(cluster.spec), *asked)
    with ThreadPoolExecutor(max_workers=1) as pool:
        run = pool.submit(forked_cli.run, argv, folder=ROOT, timeout=BOUND_S, environment=environment)

        def results() -> dict[str, dict]:
            done = run.result()
            answer = json.loads(done.stdout or "{}")
            assert "results" in answer, done.stdout + done.stderr
            assert commands(cluster) > before, "the machines were asked by SendCommand"
            return {result["id"]: result for result in answer["results"]}

        yield results


def commands(cluster: Cluster) -> int:
    """How many commands Systems Manager has had."""
    return len(cluster.client("ssm").list_commands()["Commands"])


def _of_paused_agents(cluster: Cluster, results: dict[str, dict]) -> list[str]:
    """The failed `svc.agent` of paused agents; none for one that a remedy has started again."""
    paused_on = _PAUSED.get(cluster.name, set())
    found = {f"svc.agent[{target}]" for target in paused_on} | {
        ident
        for ident in results
        for machine in paused_on
        if ident.startswith("svc.agent[") and f"-{machine}" in ident  # NAME-login-1, NAME-standby
    }
    return [ident for ident in found if ident in of_verdict(results, "fail")]


def of_verdict(results: dict[str, dict], *verdicts: str) -> set[str]:
    return {ident for ident, result in results.items() if result["verdict"] in verdicts}


def only_these_fail(results, finds, may=()):
    """Assert that `finds` fail, and at most `may` besides. An unknown result names a failed check that blocks it."""
    failed = of_verdict(results, "fail")
    assert finds <= failed <= finds | set(may), {i: results[i]["found"] for i in failed ^ finds}
    for ident in of_verdict(results, "unknown"):
        assert results[ident]["blocked_by"] in failed, (ident, results[ident]["found"])
        assert not re.search(r"blocked by (?!\w)", results[ident]["found"])


def run_remedy(cluster: Cluster, remedy: str) -> None:
    """Type the commands of a remedy: `on MACHINE: COMMANDS`. A busy slurmctld is asked once more, as a person does."""
    place, _, commands = remedy.removeprefix("on ").partition(": ")
    typed = partial(cluster.exec, "head" if place == "the head" else place, "sh", "-ec", commands)
    try:
        typed()
    except AssertionError as failed:
        if not any(words in str(failed) for words in NOT_DELIVERED):
            raise
        typed()


def each(steps: Iterable[Callable[[], object]]) -> None:
    """Take every step, also after one that failed, so that no fault stays for the next test."""
    failed: list[Exception] = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - all are raised together
            failed.append(error)
    if failed:
        raise ExceptionGroup("these steps failed", failed)


_PAUSED: dict[str, set[str]] = {}  # cluster -> machines whose agent is stopped


@contextmanager
def paused(cluster: Cluster, unit: str, *machines: str) -> Iterator[None]:
    """The unit is stopped by a signal on these machines during the block."""
    with ExitStack() as stack:
        if unit == names.AGENT_UNIT.removesuffix(".service"):
            _PAUSED[cluster.name] = set(machines)
            stack.callback(_PAUSED.pop, cluster.name)
        for machine in machines:
            stack.callback(cluster.exec, machine, "systemctl", "kill", "--signal=CONT", unit)
            cluster.exec(machine, "systemctl", "kill", "--signal=STOP", unit)
        yield
