"""Errors of accounting, QOS, accounts and preemption in a spec: sentence, changes, the only expected problem.

The spec is `builders.LAB` with three users, a local database, three QOS and three accounts, and no finding.
"""

from dataclasses import replace

from gpucluster import catalog
from gpucluster.plan.model import Containers, SlurmOnHosts
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text
from support.builders import LAB, changed, on_hosts

Change = tuple[str, str]

SITE = (
    LAB.replace(
        'version: "26.05"\n',
        'version: "26.05"\n  accounting: {database: local}\n  preemption: {by: qos, mode: requeue, exempt: 10m}\n  licenses: {matlab: 3}\n',
    )
    .replace(
        "  - {name: vision, uid: 5001}\n",
        "  - {name: vision, uid: 5001}\n  - {name: speech, uid: 5002}\n  - {name: recsys, uid: 5003}\n",
    )
    .replace(
        "{name: gpu, pools: [h100], default: true}",
        "{name: gpu, pools: [h100], default: true}\n  - {name: debug, pools: [h100], max_time: 30m, tier: 20, qos: debug}",
    )
    + """\
qos:
  - {name: normal, priority: 100}
  - {name: urgent, priority: 1000, preempts: [normal], limits: {gpus_per_user: 16}}
  - {name: debug, limits: {cpus_per_user: 8}}
accounts:
  - {name: science, share: 3, qos: [normal, urgent]}
  - {name: research, parent: science, share: 2, users: [vision, speech], limits: {gpus: 24}}
  - {name: product, qos: [normal], users: [recsys], limits: {gpu_hours_per_month: 5000}}
"""
)
_SECRET = "arn:aws:secretsmanager:us-east-1:123456789012:secret:db-AbCdEf"
_BY_QOS: Change = ("  preemption: {by: qos, mode: requeue, exempt: 10m}\n", "")
_PARTITION = "max_time: 30m, tier: 20, qos: debug"

ACCOUNT_ROWS: list[tuple[str, list[Change], str]] = [
    (
        "a database of another kind",
        [("{database: local}", "{database: mysql}")],
        "6:26: error[bad-database] slurm.accounting.database: 'mysql' is not a database; expected local",
    ),
    (
        "neither a database nor a host",
        [("{database: local}", "{keep: 365d}")],
        "6:15: error[missing-key] slurm.accounting: 'database' or 'host' is missing: `database: local`, or the host and the secret of an existing database",
    ),
    (
        "a port of a database on the head",
        [("database: local", "database: local, port: 3306")],
        "6:39: error[not-here] slurm.accounting.port: 'port' is for an existing database, and the spec names no `host`",
    ),
    (
        "a secret of AWS on hosts",
        [("database: local", f"host: db.example.org, secret: '{_SECRET}'")],
        "6:22: error[not-here] slurm.accounting.host: the secret of an existing database is in AWS Secrets Manager, which these hosts do not use; write `database: local`",
    ),
    (
        "a host that is no name",
        [("database: local", "host: 'db;x'")],
        "6:22: error[bad-host] slurm.accounting.host: 'db;x' is not a DNS name or an IPv4 address such as db.example.org",
    ),
    (
        "records that are deleted at once",
        [("database: local", "database: local, keep: 1d")],
        "6:39: error[out-of-range] slurm.accounting.keep: 1d is not between 30d and 3650d",
    ),
    (
        "nothing decides who preempts",
        [("by: qos", "by: name")],
        "7:20: error[bad-preemption] slurm.preemption.by: 'name' is not what decides who preempts; expected qos, partition",
    ),
    (
        "a mode that Slurm has and we do not",
        [("mode: requeue", "mode: suspend")],
        "7:31: error[bad-preemption] slurm.preemption.mode: 'suspend' is not what happens to a preempted job; expected requeue, cancel",
    ),
    (
        "no QOS preempts",
        [(", preempts: [normal]", "")],
        "7:20: error[nothing-preempts] slurm.preemption.by: no QOS preempts another: write `qos: [{name: urgent, preempts: [normal]}]`",
    ),
    (
        "partitions of one tier",
        [("by: qos", "by: partition"), (", preempts: [normal]", ""), ("tier: 20, ", "")],
        "7:20: error[nothing-preempts] slurm.preemption.by: all partitions have the same tier: write `tier` in the partition whose jobs go first",
    ),
    (
        "preempted jobs do not run again",
        [("  licenses", "  requeue: false\n  licenses")],
        "7:31: error[preempt-requeue] slurm.preemption.mode: 'requeue: false' lets preempted jobs end without another run; write `mode: cancel`, or remove `slurm.requeue`",
    ),
    (
        "preempts without preemption",
        [_BY_QOS],
        "25:46: error[no-preemption] qos[urgent].preempts: 'preempts' counts only with `slurm: {preemption: {by: qos}}`",
    ),
    (
        "preempts an unknown QOS",
        [("[normal], limits: {gpus_per_user", "[norml], limits: {gpus_per_user")],
        "26:47: error[unknown-qos] qos[urgent].preempts[0]: 'norml' is not a QOS; did you mean 'normal'?",
    ),
    (
        "two QOS preempt each other",
        [("{name: normal, priority: 100}", "{name: normal, priority: 100, preempts: [urgent]}")],
        "25:45: error[qos-cycle] qos[normal].preempts: normal -> urgent -> normal: these QOS preempt each other without end",
    ),
    (
        "a QOS preempts itself",
        [("preempts: [normal]", "preempts: [urgent]")],
        "26:46: error[qos-cycle] qos[urgent].preempts: urgent -> urgent: these QOS preempt each other without end",
    ),
    (
        "a QOS twice",
        [("name: debug, limits", "name: urgent, limits"), (", qos: debug", "")],
        "27:12: error[duplicate-name] qos[urgent].name: 'urgent' is already the name of qos[1]",
    ),
    (
        "a priority below zero",
        [("priority: 100}", "priority: -1}")],
        "25:30: error[out-of-range] qos[normal].priority: -1 is not between 0 and 1000000",
    ),
    (
        "limits without a limit",
        [("limits: {cpus_per_user: 8}", "limits: {}")],
        "27:27: error[no-limit] qos[debug].limits: no limit is named; there are gpus, gpus_per_user, cpus_per_user, gpu_hours_per_month",
    ),
    (
        "a limit that is no number",
        [("cpus_per_user: 8", "cpus_per_user: many")],
        "27:43: error[bad-type] qos[debug].limits.cpus_per_user: expected a whole number, found 'many'",
    ),
    (
        "a limit of GPUs without a GPU",
        [
            (", gpus: {model: h100, count: 8}", ""),
            ("gpu_hours_per_month: 5000", "cpus_per_user: 1"),
            ("gpus_per_user: 16", "cpus_per_user: 1"),
        ],
        "30:89: error[no-gpus] accounts[research].limits.gpus: 'gpus' limits GPUs, and no pool of Slurm has one",
    ),
    (
        "a limit of GPUs that counts MIG slices",
        [
            ("count: 8}", "count: 8, memory: 80GiB}"),
            ('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {mig: {1g.10gb: 7}}}'),
            ("gpu_hours_per_month: 5000", "cpus_per_user: 1"),
            ("gpus_per_user: 16", "cpus_per_user: 1"),
        ],
        "30:89: error[limit-of-slices] accounts[research].limits.gpus: 'gpus' counts each MIG slice of the partition gpu as a GPU: keep it out of that partition by `accounts`, or leave the limit out",
    ),
    (
        "an account of Slurm's own name",
        [
            ("name: science", "name: root"),
            ("parent: science", "parent: product"),
            ("gpu_hours_per_month: 5000", "gpus: 5"),
        ],
        "29:12: error[reserved-name] accounts[root].name: 'root' is Slurm's own account at the top of the tree; take another name",
    ),
    (
        "an account below an unknown one",
        [("parent: science", "parent: sciense")],
        "30:30: error[unknown-account] accounts[research].parent: 'sciense' is not an account; did you mean 'science'?",
    ),
    (
        "accounts in a circle",
        [("{name: science, share", "{name: science, parent: research, share")],
        "29:29: error[account-cycle] accounts[science].parent: science -> research -> science: no account of this circle is below the top",
    ),
    (
        "an account twice",
        [("name: product", "name: research")],
        "31:12: error[duplicate-name] accounts[research].name: 'research' is already the name of accounts[1]",
    ),
    (
        "an account with an unknown QOS",
        [("qos: [normal, urgent]", "qos: [normal, urgend]")],
        "29:45: error[unknown-qos] accounts[science].qos[1]: 'urgend' is not a QOS; did you mean 'urgent'?",
    ),
    (
        "a QOS of an account twice",
        [("qos: [normal, urgent]", "qos: [normal, normal]")],
        "29:45: error[repeated] accounts[science].qos[1]: the QOS 'normal' is named twice",
    ),
    (
        "an unknown user",
        [("[vision, speech]", "[vision, speech, guest]")],
        "30:73: error[unknown-user] accounts[research].users[2]: 'guest' is not one of `users`; there are vision, speech, recsys",
    ),
    (
        "a user twice",
        [("[vision, speech]", "[vision, vision, speech]")],
        "30:65: error[repeated] accounts[research].users[1]: the user 'vision' is named twice",
    ),
    (
        "a user without an account",
        [("[vision, speech]", "[vision]")],
        "12:5: warning[user-without-account] users[speech]: 'speech' is in no account: Slurm refuses the user's jobs; add the user to `accounts[].users`",
    ),
    (
        "a share of nothing",
        [("share: 3", "share: 0")],
        "29:28: error[out-of-range] accounts[science].share: 0 is not between 1 and 1000000",
    ),
    (
        "hours of an account with two QOS",
        [("qos: [normal], users", "qos: [normal, urgent], users")],
        "31:91: error[month-limit] accounts[product].limits.gpu_hours_per_month: 'gpu_hours_per_month' needs exactly one QOS, and the account has normal, urgent: Slurm counts the hours of each QOS apart",
    ),
    (
        "hours of an account with others below it",
        [("share: 3, qos: [normal, urgent]", "share: 3, qos: [normal], limits: {gpu_hours_per_month: 9}")],
        "29:76: error[month-limit] accounts[science].limits.gpu_hours_per_month: 'gpu_hours_per_month' counts the jobs of this account only, and research is below it: write it there",
    ),
    (
        "hours beside a limit of the QOS",
        [("name: normal, priority: 100", "name: normal, limits: {gpus: 8}")],
        "31:83: error[month-limit] accounts[product].limits.gpu_hours_per_month: the QOS normal limits the sum of all its jobs, and this account gets a QOS of its own like it: Slurm would count them apart",
    ),
    (
        "a QOS with the name of one that is made",
        [("name: debug, limits", "name: product-normal, limits"), (", qos: debug", "")],
        "31:83: error[duplicate-name] accounts[product].limits.gpu_hours_per_month: this account gets the QOS product-normal, and a QOS of the spec has that name",
    ),
    (
        "a partition with an unknown QOS",
        [("qos: debug}", "qos: dbug}")],
        "23:64: error[unknown-qos] partitions[debug].qos: 'dbug' is not a QOS; did you mean 'debug'?",
    ),
    (
        "a partition for an unknown account",
        [(_PARTITION, f"{_PARTITION}, accounts: [reserch]")],
        "23:82: error[unknown-account] partitions[debug].accounts[0]: 'reserch' is not an account; did you mean 'research'?",
    ),
    (
        "a partition for an unknown QOS",
        [(_PARTITION, f"{_PARTITION}, allow_qos: [urgnt]")],
        "23:83: error[unknown-qos] partitions[debug].allow_qos[0]: 'urgnt' is not a QOS; did you mean 'urgent'?",
    ),
    (
        "a tier of nothing",
        [("tier: 20", "tier: 0")],
        "23:55: error[out-of-range] partitions[debug].tier: 0 is not between 1 and 10000",
    ),
]


def _on_aws(accounting: str) -> list[Change]:
    return [('  version: "24.11"', f'  version: "24.11"\n  accounting: {{{accounting}}}')]


STANDBY = (
    "  machine: m7i.2xlarge",
    "  machine: m7i.2xlarge\n  standby: {machine: m7i.2xlarge, zone: us-east-2b, state: /state}\nstorage:\n  - {mount: /state, efs: {}}",
)
_ADVICE = ("{id: head-state, because: it lives as long as a test}, ", "")
ON_AWS_ROWS: list[tuple[str, list[Change], str]] = [
    (
        "a database here and elsewhere",
        _on_aws(f"database: local, host: db, secret: '{_SECRET}'"),
        "10:39: error[two-databases] slurm.accounting.host: the database is on the head (`database`) or elsewhere (`host`), not both",
    ),
    (
        "a database without its secret",
        _on_aws("host: db.example.org"),
        "10:15: error[missing-key] slurm.accounting: 'secret' is missing: the ARN of the secret with `username` and `password` of the database",
    ),
    (
        "a standby on a database of the head",
        [*_on_aws("database: local"), STANDBY, _ADVICE],
        "10:26: error[standby-database] slurm.accounting.database: with a standby the database is not on the head, which may be off: write `host` and `secret` of an existing database",
    ),
    (
        "a partition's QOS without a database",
        [("max_time: 1d}", "max_time: 1d, qos: normal}")],
        "20:66: error[no-accounting] partitions[gpu].qos: 'qos' needs a database: write `slurm: {accounting: {database: local}}`",
    ),
    (
        "accounts without a database",
        [("accept:", "accounts: [{name: research}]\naccept:")],
        "21:11: error[no-accounting] accounts: 'accounts' needs a database: write `slurm: {accounting: {database: local}}`",
    ),
]


def a_site_plan(*changes: Change) -> SlurmOnHosts:
    """The plan of that spec."""
    spec = inspect_text(changed(SITE, *changes), "lab.yaml", catalog.load()).result()
    return on_hosts(resolve(spec, catalog.load()))


def with_containers(plan: SlurmOnHosts, kind: Containers) -> SlurmOnHosts:
    """The plan with containers."""
    return replace(plan, slurm=replace(plan.slurm, containers=kind))
