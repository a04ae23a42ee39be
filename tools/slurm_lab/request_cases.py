"""What a job asks for, and how it leaves: the cases of `slurm_lab.requests`. ID is replaced by the id of the case."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

ACCOUNT = "base"  # of every user but one
USER, STRANGER = "researcher", "stranger"  # the stranger has no association
ENFORCED = "associations,limits,qos,safe"
Command = tuple[str, ...]
_NODE = "CPUs=2 RealMemory=1000"
_OPEN = "Nodes=ID-1 MaxTime=60 State=UP"
_PARTITION = f"ID {_OPEN}"
_TYPES = ("gpu,mps,shard", "gpu,mps,shard")
_ALL = ("--cpus-per-task=2", "--mem=100", "--time=30")  # a whole node


@dataclass(frozen=True)
class Side:
    """The files of a case before or after the change."""

    node: str = _NODE
    count: int = 1
    partition: str = _PARTITION
    licence: str = ""
    gres: tuple[str, ...] = ()


@dataclass(frozen=True)
class RequestCase:
    """A request, and a change. `first`: what the job asks for that fills the nodes; None: none runs."""

    id: str
    subject: str
    change: str
    asks: tuple[str, ...]
    before: Side
    after: Side
    first: tuple[str, ...] | None = ()
    setup: tuple[Command, ...] = ()
    commands: tuple[Command, ...] = ()
    depends: str = ""  # the case on whose job it depends
    types: tuple[str, str] = _TYPES  # GresTypes
    enforce: tuple[str, str] = (ENFORCED, ENFORCED)  # AccountingStorageEnforce
    user: str = USER
    running_of: str = ""  # the case of which this one has only the running job
    names_partition: bool = True  # else jobs go to the default one, which one case of a group may have

    @property
    def nodes(self) -> list[str]:
        return [f"{self.id}-{n}" for n in range(1, max(self.before.count, self.after.count) + 1)]

    @property
    def of_cluster(self) -> tuple[tuple[str, str], ...]:
        """What cases that share one slurm.conf have in common."""
        return self.types, self.enforce

    @property
    def is_hardware(self) -> bool:
        """Whether nodes change or leave."""
        old, new = self.before, self.after
        return (old.node, old.count, old.gres) != (new.node, new.count, new.gres)

    @property
    def is_held(self) -> bool:
        """Whether the change waits until its nodes are drained and have no jobs, as the agent of a head holds it."""
        return self.is_hardware and not self.running_of

    def apart(self) -> list["RequestCase"]:
        """The case; if nodes change, one whose change waits for the running job, and one whose change does not."""
        if not self.is_hardware:
            return [self]
        return [self, replace(self, id=f"{self.id}-r", running_of=self.id)]

    def words(self, found: Iterable[str]) -> list[str]:
        return [word.replace("ID", self.id) for word in found]

    def facts(self) -> dict[str, Any]:
        asks = [word for word in self.asks if word not in _ALL]
        return {"id": self.id, "subject": self.subject, "change": self.change, "asks": " ".join(asks)}


def _case(
    subject: str, change: str, asks: str, before: Side = Side(), after: Side | None = None, **more: Any
) -> RequestCase:
    every = tuple(f"--{word}" for word in asks.split()) + _ALL
    name = more.pop("name", f"{subject}-{change}".replace(" ", "-"))
    first = more.pop("first", every)
    if isinstance(first, str):
        first = (*(f"--{word}" for word in first.split()), *_ALL)
    return RequestCase(
        name,
        subject,
        change,
        _once(every),
        before,
        after or before,
        None if first is None else _once(first),
        **more,
    )


def _once(words: Iterable[str]) -> tuple[str, ...]:
    """The first of each option."""
    found: dict[str, str] = {}
    for word in words:
        found.setdefault(word.partition("=")[0], word)
    return tuple(found.values())


def _gpus(text: str, *gres: str) -> Side:
    return Side(node=f"{_NODE} Gres={text}", gres=gres)


def _of(*lines: str) -> tuple[str, ...]:
    return tuple(f"Name={line}" for line in lines)


def _sacctmgr(*lines: str) -> tuple[Command, ...]:
    return tuple(("sacctmgr", "-i", *line.split()) for line in lines)


def _partition(text: str, count: int = 1, name: str = "ID") -> Side:
    return Side(partition=f"{name} {text}", count=count)


def _in_account(qos: str = "") -> tuple[Command, ...]:
    more = f" qos={qos} defaultqos={qos.split(',', maxsplit=1)[0]}" if qos else ""
    return _sacctmgr(f"add account ID{more}", "add user researcher account=ID")


_A = "gpu Type=a File=/dev/nvidia"
_WHOLE = _gpus("gpu:a:2", *_of(f"{_A}[0-1]"))
_FOUR = _gpus("gpu:a:4", *_of(f"{_A}[0-3]"))
_SLICED = _gpus("gpu:1g.10gb:2", *_of("gpu Type=1g.10gb File=/dev/nvidia[0-1]"))
_SHARDS = _gpus("gpu:a:2,shard:8", *_of(f"{_A}[0-1]", "shard Count=8"))
_MPS = _gpus("gpu:a:2,mps:200", *_of(f"{_A}[0-1]", "mps Count=200"))
_NONE = Side()
_DEFAULT = _partition(f"{_OPEN} Default=YES")
_OTHER_DEFAULT = _partition(f"{_OPEN} SuspendTime=INFINITE\nPartitionName=ID-other {_OPEN} Default=YES")
_TWO = _partition("Nodes=ID-[1-2] MaxTime=60 State=UP", 2)
_RESERVE = (
    "scontrol",
    "create",
    "reservation",
    "reservationname=ID",
    "users=researcher",
    "nodes=ID-1",
    "duration=60",
)
_DRAIN = ("scontrol", "update", "nodename=ID-1", "state=drain", "reason=changes")
_DELETE = ("scontrol", "delete", "reservationname=ID")
_QOS_ASKS = "qos=ID account=ID"
_FEW_CPUS = "nodes=2 ntasks-per-node=1 cpus-per-task=1"
_CLOSED = (
    "modify user where name=researcher account=ID set grpsubmitjobs=0",
    "modify account where name=ID set grpsubmitjobs=0",
)
_GPU_QOS = f"gres=gpu:2 {_QOS_ASKS}"
_AT_LEAST_TWO = _partition("Nodes=ID-[1-2] MaxTime=60 State=UP MinNodes=2", 2)
_HALVES = Side(node="CPUs=1 RealMemory=1000", count=2, partition=_TWO.partition)
_ONE_OF_TWO = (("scontrol", "update", "nodename=ID-2", "state=drain", "reason=first"),)  # until the change
_ON = ("associations", "associations,limits", "associations,qos", ENFORCED)


def _enforced(key: str, who: str, asks: str = "", before: Side = _NONE, **more: Any) -> list[RequestCase]:
    """A job that no rule of accounts keeps from running, and the rules begin."""
    return [
        _case(
            *("AccountingStorageEnforce", f"{words} for {who}", asks, before),
            name=f"enforce-{words.rpartition(',')[2]}-{key}",
            enforce=("", words),
            **more,
        )
        for words in _ON
    ]


def _lifted(key: str, who: str, asks: str = "", before: Side = _NONE, **more: Any) -> RequestCase:
    """The rules of accounts end."""
    return _case(
        *("AccountingStorageEnforce", f"removed for {who}", asks, before),
        name=f"enforce-off-{key}",
        enforce=(ENFORCED, ""),
        **more,
    )


CASES = (
    _case("nothing", "leaves", ""),
    _case("licence", "removed", "licenses=ID:2", Side(licence="ID:4"), Side()),
    _case("licence", "lowered below the request", "licenses=ID:2", Side(licence="ID:4"), Side(licence="ID:1"), name="licence-too-few"),
    _case("licence", "lowered", "licenses=ID:2", Side(licence="ID:4"), Side(licence="ID:2")),
    _case("GPUs", "lowered below the request", "gres=gpu:4", _FOUR, _WHOLE, name="gpus-too-few"),
    _case("GPUs", "lowered", "gres=gpu:2", _FOUR, _WHOLE, name="gpus-fewer"),
    _case("GPUs", "of another model, asked by model", "gres=gpu:a:1", _WHOLE, _gpus("gpu:b:2", *_of("gpu Type=b File=/dev/nvidia[0-1]")), name="gpu-model"),
    _case("GPUs", "of another model, asked without it", "gres=gpu:1", _WHOLE, _gpus("gpu:b:2", *_of("gpu Type=b File=/dev/nvidia[0-1]")), name="gpu-model-any"),
    _case("GPUs", "removed", "gres=gpu:1", _WHOLE, _NONE, name="gpus-removed"),
    _case("MIG", "added, asked by model", "gres=gpu:a:1", _WHOLE, _SLICED, name="mig-added"),
    _case("MIG", "added, asked without a model", "gres=gpu:1", _WHOLE, _SLICED, name="mig-added-any"),
    _case("MIG", "profile removed", "gres=gpu:1g.10gb:1", _SLICED, _gpus("gpu:2g.20gb:2", *_of("gpu Type=2g.20gb File=/dev/nvidia[0-1]")), name="mig-profile"),
    _case("MIG", "removed", "gres=gpu:1g.10gb:1", _SLICED, _WHOLE, name="mig-removed"),
    _case("shards", "removed", "gres=shard:2", _SHARDS, _WHOLE),
    _case("shards", "lowered below the request", "gres=shard:4", _SHARDS, _gpus("gpu:a:2,shard:2", *_of(f"{_A}[0-1]", "shard Count=2")), name="shards-too-few"),
    _case("shards", "lowered below the request, on each GPU only", "gres=shard:4", _SHARDS, _gpus("gpu:a:2,shard:4", *_of(f"{_A}[0-1]", "shard Count=4")), name="shards-too-few-of-gpu"),
    _case("MPS", "lowered below the request", "gres=mps:60", _MPS, _gpus("gpu:a:2,mps:50", *_of(f"{_A}[0-1]", "mps Count=50")), name="mps-too-few"),
    _case("MPS", "lowered below the request, on each GPU only", "gres=mps:60", _MPS, _gpus("gpu:a:2,mps:100", *_of(f"{_A}[0-1]", "mps Count=100")), name="mps-too-few-of-gpu"),
    _case("shards", "to MIG", "gres=shard:2", _SHARDS, _SLICED, name="shards-to-mig"),
    _case("MPS", "removed", "gres=mps:50", _MPS, _WHOLE, name="mps-removed"),
    _case("MPS", "to shards", "gres=mps:50", _MPS, _SHARDS, name="mps-to-shards"),
    _case("feature", "removed", "constraint=fabric", Side(node=f"{_NODE} Features=fabric"), Side()),
    _case("reservation", "removed before it begins", "reservation=ID", first=None, setup=((*_RESERVE, "starttime=now+2hours"),), commands=(_DELETE,), name="reservation-removed"),
    _case("reservation", "removed while a job uses it", "reservation=ID", setup=((*_RESERVE, "starttime=now"),), commands=(_DELETE,), name="reservation-used"),
    _case("nodes", "fewer than the request", _FEW_CPUS, _TWO, Side(), name="nodes-too-few", first="nodes=2"),
    _case("nodes", "fewer than the request, with all their CPUs", "nodes=2", _TWO, Side(), name="nodes-too-few-cpus"),
    _case("nodes", "named one removed", "nodelist=ID-2", _TWO, Side(), name="node-named"),
    _case("nodes", "one drained, as the agent of a head holds a bundle", "", _TWO, first="nodes=2", commands=(_DRAIN,), name="node-drained"),
    _case("nodes", "all drained, as the agent of a head holds a bundle", "", commands=(_DRAIN,), name="nodes-drained"),
    _case("memory", "lowered below the request", "mem=900", Side(), Side(node="CPUs=2 RealMemory=500"), name="memory-too-low"),
    _case("CPUs", "lowered below the request", "", Side(), Side(node="CPUs=1 RealMemory=1000"), name="cpus-too-few"),
    *(
        _case("CPUs", f"of each node lowered below {what}, not of the partition", asks, _TWO, _HALVES, name=f"node-cpus-{name}", setup=_ONE_OF_TWO)
        for name, what, asks in (
            ("task", "a task of one node", "nodes=1 ntasks=1"),
            ("task-any", "a task", "ntasks=1"),
            ("tasks", "the tasks of one node", "nodes=1 ntasks=2 cpus-per-task=1"),
            ("tasks-per-node", "the tasks of each node", "nodes=1 ntasks-per-node=2 cpus-per-task=1"),
            ("tasks-any", "all tasks", "ntasks=2 cpus-per-task=1"),
        )
    ),
    _case("partition", "removed", "", Side(), _partition("Nodes=ID-1 MaxTime=60 State=UP", name="ID-other")),
    *(
        _case("partition", word, "", Side(), _partition(f"Nodes=ID-1 MaxTime=60 State={word}"), name=f"partition-{word.lower()}")
        for word in ("DOWN", "DRAIN", "INACTIVE")
    ),
    _case("partition", "no default any more, and not named", "", _DEFAULT, Side(), types=("gpu,mps,shard", "gpu"), names_partition=False, name="default-removed"),
    _case("partition", "another default, and not named", "", _DEFAULT, _OTHER_DEFAULT, types=("gpu", ""), names_partition=False, name="default-moved"),
    _case("partition", "shorter MaxTime", "", Side(), _partition("Nodes=ID-1 MaxTime=10 State=UP"), name="partition-max-time"),
    _case("partition", "smaller MaxNodes", "nodes=2", _TWO, _partition("Nodes=ID-[1-2] MaxTime=60 State=UP MaxNodes=1", 2), name="partition-max-nodes"),
    _case("partition", "MinNodes above the request", "nodes=1 nodelist=ID-1", _TWO, _AT_LEAST_TWO, name="partition-min-nodes"),
    _case("partition", "MinNodes above one, a task asked", "ntasks=1", _TWO, _AT_LEAST_TWO, name="partition-min-nodes-task", first="nodes=2"),
    _case("partition", "MinNodes above one, two tasks asked", "ntasks=2 cpus-per-task=1", _TWO, _AT_LEAST_TWO, name="partition-min-nodes-tasks", first="nodes=2"),
    _case("partition", "MaxMemPerNode below the request", "mem=900", Side(), _partition(f"{_OPEN} MaxMemPerNode=500"), name="partition-max-memory"),
    _case("partition", "AllowGroups without a group of its user", "", Side(), _partition(f"{_OPEN} AllowGroups=elsewhere"), name="partition-groups", setup=(("groupadd", "elsewhere"),)),
    _case("partition", "other nodes", "", _partition("Nodes=ID-1 MaxTime=60 State=UP", 2), _partition("Nodes=ID-2 MaxTime=60 State=UP", 2), name="partition-other-nodes"),
    _case("partition", "fewer nodes than the request", _FEW_CPUS, _TWO, _partition("Nodes=ID-1 MaxTime=60 State=UP", 2), name="partition-too-few", first="nodes=2"),
    _case("partition", "fewer nodes than the request, with all their CPUs", "nodes=2", _TWO, _partition("Nodes=ID-1 MaxTime=60 State=UP", 2), name="partition-too-few-cpus"),
    _case("partition", "a QOS of its own with a limit below the request", "gres=gpu:2", Side(node=_WHOLE.node, gres=_WHOLE.gres), Side(node=_WHOLE.node, gres=_WHOLE.gres, partition=f"{_PARTITION} QOS=few"), name="partition-own-qos", setup=_sacctmgr("add qos few grptres=gres/gpu=1")),
    *(
        _case("partition", f"a QOS of its own with {key} below the request", "gres=gpu:2", Side(node=_WHOLE.node, gres=_WHOLE.gres), Side(node=_WHOLE.node, gres=_WHOLE.gres, partition=f"{_PARTITION} QOS={name}"), name=f"partition-own-qos-{name}", setup=_sacctmgr(f"add qos {name} {key}={value}"))
        for name, key, value in (("user", "MaxTRESPerUser", "gres/gpu=1"), ("cpus", "MaxTRESPerUser", "cpu=1"), ("minutes", "GrpTRESMins", "gres/gpu=1"))
    ),
    _case("partition", "AllowQos without its QOS", "", Side(), _partition("Nodes=ID-1 MaxTime=60 State=UP AllowQos=other"), name="partition-qos", setup=_sacctmgr("add qos other")),
    _case("partition", "AllowAccounts without its account", "", Side(), _partition("Nodes=ID-1 MaxTime=60 State=UP AllowAccounts=elsewhere"), name="partition-accounts", setup=_sacctmgr("add account elsewhere")),
    _case("QOS", "deleted", _QOS_ASKS, setup=(*_sacctmgr("add qos ID"), *_in_account("normal,ID")), commands=_sacctmgr("delete qos ID"), name="qos-deleted"),
    _case("QOS", "removed from its account", _QOS_ASKS, setup=(*_sacctmgr("add qos ID"), *_in_account("normal,ID")), commands=_sacctmgr("modify account where name=ID set qos=normal"), name="qos-of-account"),
    _case("QOS", "GrpTRES lowered below the request", _GPU_QOS, _WHOLE, setup=(*_sacctmgr("add qos ID grptres=gres/gpu=4"), *_in_account("normal,ID")), commands=_sacctmgr("modify qos where name=ID set grptres=gres/gpu=1"), name="qos-group"),
    _case("QOS", "MaxTRESPerUser lowered below the request", _GPU_QOS, _WHOLE, setup=(*_sacctmgr("add qos ID maxtresperuser=gres/gpu=4"), *_in_account("normal,ID")), commands=_sacctmgr("modify qos where name=ID set maxtresperuser=gres/gpu=1"), name="qos-user"),
    _case("QOS", "GrpTRESMins used up", _GPU_QOS, _WHOLE, setup=(*_sacctmgr("add qos ID"), *_in_account("normal,ID")), commands=_sacctmgr("modify qos where name=ID set grptresmins=gres/gpu=1"), name="qos-minutes"),
    _case("QOS", "may preempt", _QOS_ASKS, first="qos=normal account=ID", setup=(*_sacctmgr("add qos ID"), *_in_account("normal,ID")), commands=_sacctmgr("modify qos where name=ID set preempt=normal"), name="qos-preempts"),
    _case("account", "closed", "account=ID", setup=_in_account(), commands=_sacctmgr(*_CLOSED), name="account-closed"),
    _case("account", "renamed: closed, and another one opened", "account=ID", setup=_in_account(), commands=_sacctmgr(*_CLOSED, "add account ID-new", "add user researcher account=ID-new"), name="account-renamed"),
    _case("account", "without its user", "account=ID", setup=_in_account(), commands=_sacctmgr(_CLOSED[0]), name="account-left"),
    _case("account", "deleted", "account=ID", setup=_in_account(), commands=_sacctmgr("delete account ID"), name="account-deleted"),
    _case("account", "moved", "account=ID", setup=_in_account(), commands=_sacctmgr("modify account where name=ID set parent=base"), name="account-moved"),
    _case("account", "moved below one with a limit below the request", "gres=gpu:2 account=ID", _WHOLE, setup=(*_in_account(), *_sacctmgr("add account ID-above grptres=gres/gpu=1")), commands=_sacctmgr("modify account where name=ID set parent=ID-above"), name="account-moved-limit"),
    _case("account", "GrpTRES lowered below the request", "gres=gpu:2 account=ID", _WHOLE, setup=_in_account(), commands=_sacctmgr("modify account where name=ID set grptres=gres/gpu=1"), name="account-group"),
    _case("account", "GrpTRES of the user lowered below the request", "gres=gpu:2 account=ID", _WHOLE, setup=_in_account(), commands=_sacctmgr("modify user where name=researcher account=ID set grptres=gres/gpu=1"), name="account-user"),
    *_enforced("known", "a user with an association", "account=ID", setup=_in_account()),
    *_enforced("stranger", "a user without an association", user=STRANGER),
    *_enforced("group", "a job above GrpTRES of its account", "gres=gpu:2 account=ID", _WHOLE, setup=(*_in_account(), *_sacctmgr("modify account where name=ID set grptres=gres/gpu=1"))),
    *_enforced("minutes", "a job that may take more than is left of GrpTRESMins", "gres=gpu:1 account=ID", _WHOLE, setup=(*_in_account(), *_sacctmgr("modify account where name=ID set grptresmins=gres/gpu=20"))),
    *_enforced("qos", "a job of a QOS that its account has not", _QOS_ASKS, setup=(*_sacctmgr("add qos ID"), *_in_account())),
    _lifted("known", "a user with an association", "account=ID", setup=_in_account()),
    _lifted("group", "a job above GrpTRES of its account", "gres=gpu:2 account=ID", _WHOLE, first="gres=gpu:1 account=ID", setup=(*_in_account(), *_sacctmgr("modify account where name=ID set grptres=gres/gpu=1"))),
    _lifted("minutes", "a job that may take more than is left of GrpTRESMins", "gres=gpu:1 account=ID", _WHOLE, first="gres=gpu:1 account=ID time=10", setup=(*_in_account(), *_sacctmgr("modify account where name=ID set grptresmins=gres/gpu=20"))),
    _case("dependency", "afterok of a job that is cancelled", "dependency=afterok:OTHER", first=None, depends="partition-removed", name="afterok-cancelled"),
    _case("dependency", "afterany of a job that is cancelled", "dependency=afterany:OTHER", first=None, depends="partition-removed", name="afterany-cancelled"),
    _case("dependency", "afterok of a job that never starts", "dependency=afterok:OTHER", first=None, depends="gpus-removed", name="afterok-waits"),
    _case("dependency", "afterany of a job that never starts", "dependency=afterany:OTHER", first=None, depends="gpus-removed", name="afterany-waits"),
    # GresTypes without the resource: no node has it any more
    *(
        replace(case, id=f"last-{case.id}", types=("gpu,mps,shard", "gpu"), change=f"{case.change} from all nodes")
        for case in (
            _case("shards", "removed", "gres=shard:2", _SHARDS, _WHOLE),
            _case("MPS", "removed", "gres=mps:50", _MPS, _WHOLE, name="mps-removed"),
        )
    ),
    *(
        replace(case, id=f"last-{case.id}", types=("gpu", ""), change=f"{case.change} from all nodes")
        for case in (_case("GPUs", "removed", "gres=gpu:1", _WHOLE, _NONE, name="gpus-removed"),)
    ),
)  # fmt: skip
