"""Accounting in a plan: the database, the tree of accounts, the QOS of accounts with a monthly limit, and the reasons."""

import dataclasses

import pytest
from support.account_rows import SITE
from support.builders import SPEC, a_lab_plan, changed

from gpucluster import catalog
from gpucluster.plan import codec, plan_json
from gpucluster.plan.explain import explain
from gpucluster.plan.model import Accounting, ExternalDatabase, Limits, LocalDatabase, SlurmPlan
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text

SECRET = "arn:aws:secretsmanager:us-east-2:123456789012:secret:db-AbCdEf"
VERSION = '  version: "24.11"'


def _plan(text: str) -> SlurmPlan:
    plan = resolve(inspect_text(text, "x.yaml", catalog.load()).result(), catalog.load())
    assert plan.slurm is not None
    return plan


def _accounting(*changes: tuple[str, str]) -> Accounting:
    found = _plan(changed(SITE, *changes)).slurm.accounting
    assert found is not None
    return found


def test_without_accounting_the_plan_has_none() -> None:
    assert a_lab_plan().slurm.accounting is None


def test_parents_stand_before_their_children_whatever_the_order_of_the_spec() -> None:
    science = "  - {name: science, share: 3, qos: [normal, urgent]}\n"
    found = _accounting((science, ""), ("5000}}\n", "5000}}\n" + science))
    assert [(one.name, one.parent) for one in found.accounts] == [
        ("product", "root"),
        ("science", "root"),
        ("research", "science"),
    ]


def test_an_account_without_qos_has_those_of_its_parent() -> None:
    by_name = {one.name: one for one in _accounting().accounts}
    assert by_name["research"].qos == ("normal", "urgent")
    assert by_name["research"].limits == Limits(gpus=24)
    top = _accounting(("share: 3, qos: [normal, urgent]", "share: 3"))
    assert {one.name: one.qos for one in top.accounts}["research"] == ("normal",)


def test_a_monthly_limit_makes_a_qos_of_the_account_like_its_base() -> None:
    found = _accounting()
    made = {one.name: one for one in found.qos}["product-normal"]
    assert (made.priority, made.gpu_hours_per_month) == (100, 5000)
    assert {one.name: one.qos for one in found.accounts}["product"] == ("product-normal",)


def test_what_preempts_the_base_preempts_the_qos_that_is_made_of_it() -> None:
    assert {one.name: one.preempts for one in _accounting().qos}["urgent"] == ("normal", "product-normal")


def test_a_partition_that_allows_the_base_allows_the_qos_that_is_made_of_it() -> None:
    plan = _plan(changed(SITE, ("qos: debug}", "qos: debug, allow_qos: [normal]}")))
    assert plan.partitions[1].allow_qos == ("normal", "product-normal")


@pytest.mark.parametrize(
    ("machine", "mib"), [("m7i.large", 2048), ("m7i.2xlarge", 4096), ("m7i.24xlarge", 4096)]
)
def test_the_database_has_a_part_of_the_heads_memory(machine: str, mib: int) -> None:
    """slurmdbd logs an error if the cache is below 2 GiB."""
    text = changed(SPEC, (VERSION, f"{VERSION}\n  accounting: {{database: local}}"), ("m7i.2xlarge", machine))
    accounting = _plan(text).slurm.accounting
    assert accounting is not None
    assert accounting.database == LocalDatabase(buffer_pool_mib=mib)


def test_a_database_elsewhere_has_the_systems_certificates_and_the_usual_port() -> None:
    text = changed(SPEC, (VERSION, f"{VERSION}\n  accounting: {{host: db.example.org, secret: '{SECRET}'}}"))
    accounting = _plan(text).slurm.accounting
    assert accounting is not None
    assert accounting.database == ExternalDatabase(
        host="db.example.org", port=3306, secret=SECRET, ca="/etc/ssl/certs/ca-certificates.crt"
    )
    assert not accounting.enforced


def test_a_plan_with_accounts_survives_json() -> None:
    plan = _plan(SITE)
    assert plan_json.load_slurm(codec.dumps(plan)) == plan


def test_each_default_is_explained_with_its_reason() -> None:
    spec = inspect_text(SITE, "lab.yaml", catalog.load()).result()
    notes = {note.path: note for note in explain(spec, catalog.load(), resolve(spec, catalog.load()))}
    assert notes["slurm.priority.qos"].value == "1000000"
    assert notes["slurm.accounting.keep"].value == "730d"
    assert notes["accounts[product].qos"].value == "product-normal"
    assert "5000 GPU-hours" in notes["accounts[product].qos"].reason
    assert notes["accounts[research].qos"].value == "normal, urgent"
    assert all(note.reason for note in notes.values())


def test_a_cluster_without_a_database_says_where_its_records_are() -> None:
    text = changed(SPEC)
    spec = inspect_text(text, "spec.yaml", catalog.load()).result()
    notes = {note.path: note for note in explain(spec, catalog.load(), resolve(spec, catalog.load()))}
    assert notes["slurm.accounting"].value == "/var/log/slurm/jobs.log"


def test_only_fields_of_accounts_differ_without_accounts() -> None:
    plan = _plan(SITE)
    without = _plan(
        SITE[: SITE.index("qos:\n  - {name")]
        .replace(", qos: debug", "")
        .replace("  preemption: {by: qos, mode: requeue, exempt: 10m}\n", "")
    )
    assert without.slurm.accounting is not None
    assert not without.slurm.accounting.enforced
    assert dataclasses.replace(without.slurm, accounting=None, preemption=None) == dataclasses.replace(
        plan.slurm, accounting=None, preemption=None
    )


def test_a_partition_without_gpus_bills_its_cpus() -> None:
    text = changed(
        SITE, (", gpus: {model: h100, count: 8}", ""), (", limits: {gpu_hours_per_month: 5000}", ""),
        (", limits: {gpus: 24}", ""), ("gpus_per_user: 16", "cpus_per_user: 16"),
    )  # fmt: skip
    spec = inspect_text(text, "lab.yaml", catalog.load()).result()
    notes = {note.path: note for note in explain(spec, catalog.load(), resolve(spec, catalog.load()))}
    assert notes["partitions[gpu].billing.cpu"].value == "10"
    assert "slurm.billing.gpu" not in notes
