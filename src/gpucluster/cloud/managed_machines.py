"""The machines of a cluster in EC2, by the words that a person types: `head`, `standby`, `login`, a login machine's name, a node, an id."""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucluster.cloud.run_command import Clients, ManagedMachine, asked
from gpucluster.errors import StateError
from gpucluster.json_text import parse_json
from gpucluster.plan import names
from gpucluster.shell import Result
from gpucluster.slurm import client, parse
from gpucluster.slurm.parse import SlurmAnswerError
from gpucluster.text import quoted

_RESTART = "pulumi up creates a missing head; aws ec2 start-instances starts a stopped one"

OnHead = Callable[[Sequence[str]], Result]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instance:
    role: str
    id: str
    state: str
    name: str
    address: str


class ManagedMachines:
    """Finds machines by their tags. `on_head` runs a command on the head: Slurm knows the address of a node."""

    def __init__(self, cluster: str, region: str, clients: Clients, on_head: OnHead) -> None:
        self._cluster, self._region, self._clients, self._on_head = cluster, region, clients, on_head

    def find(self, word: str) -> ManagedMachine:
        """Return the running machine. For `head` also the standby, if the head does not run. StateError names what was found."""
        found = self._instances()
        running = [one for one in found if one.state == "running"]
        if word == names.ROLE_HEAD:
            return self._managed(self._head(running, found))
        there = next((one for one in running if word and word in (one.id, one.name)), None)
        if there is None and word in (names.ROLE_STANDBY, names.ROLE_LOGIN):
            there = next((one for one in running if one.role == word), None)
        return self._managed(there or self._node(word, running))

    def _head(self, running: Sequence[_Instance], found: Iterable[_Instance]) -> _Instance:
        for role in names.HEAD_ROLES:
            for one in running:
                if one.role == role:
                    return one
        heads = [one for one in found if one.role in names.HEAD_ROLES]
        seen = ", ".join(f"{one.role} {one.id} is {one.state}" for one in heads)
        raise StateError(
            f"no head of {self._cluster} runs in {self._region}: {seen or 'no instance has its tags'}; expected a"
            f" running instance with the tags {names.TAG_CLUSTER}={self._cluster} and {names.TAG_ROLE}={names.ROLE_HEAD}",
            next_step=_RESTART,
        )

    def _node(self, word: str, running: Iterable[_Instance]) -> _Instance:
        address = self._address(word)
        for one in running:
            if one.role == names.ROLE_NODE and one.address == address:
                return one
        raise StateError(
            f"no running machine of {self._cluster} is called {quoted(word)}",
            next_step=f"gpucluster status {self._cluster}; head, standby, login, the names of sinfo -N, instance ids",
        )

    def _address(self, node: str) -> str:
        """The address that Slurm has for a node that is up; empty for other words."""
        if not node.replace("-", "").isalnum() or node.startswith("-"):
            return ""
        done = self._on_head(client.show_node(node))
        try:
            found = parse.parse_nodes(done.stdout) if done.code == 0 else ()
        except SlurmAnswerError:
            return ""
        return next((one.address for one in found if one.name == node), "")

    def _instances(self) -> list[_Instance]:
        """The instances of the cluster that are not terminated, the heads first."""
        filters = [{"Name": f"tag:{names.TAG_CLUSTER}", "Values": [self._cluster]}]

        def pages() -> list[Mapping[str, Any]]:
            listed = self._clients("ec2").get_paginator("describe_instances").paginate(Filters=filters)
            return [one for page in listed for r in page["Reservations"] for one in r["Instances"]]

        where = f"the instances of {self._cluster} in {self._region}"
        rows = [_row(one) for one in asked(where, pages)]
        return sorted(
            (r for r in rows if r.state != "terminated"),
            key=lambda r: (r.role not in names.HEAD_ROLES, r.role, r.id),
        )

    def _managed(self, one: _Instance) -> ManagedMachine:
        return ManagedMachine(
            cluster=self._cluster,
            role=one.role,
            instance=one.id,
            region=self._region,
            bucket=_bucket(self._cluster, one.id, self._region, self._clients)
            if one.role in names.HEAD_ROLES
            else "",
        )


def _row(one: Mapping[str, Any]) -> _Instance:
    tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}
    return _Instance(
        role=tags.get(names.TAG_ROLE, ""),
        id=one["InstanceId"],
        state=one["State"]["Name"],
        name=tags.get("Name", ""),
        address=one.get("PrivateIpAddress", ""),
    )


def _bucket(cluster: str, instance: str, region: str, clients: Clients) -> str:
    """The cluster's bucket, from the user data by which the machine finds it."""
    where = f"the user data of {instance} in {region}"
    answer = asked(
        where, lambda: clients("ec2").describe_instance_attribute(InstanceId=instance, Attribute="userData")
    )
    try:
        config = parse_json(base64.b64decode(answer["UserData"]["Value"]).partition(b"\n")[2])
        (text,) = (one["content"] for one in config["write_files"] if one["path"] == names.USER_DATA_FILE)
        return str(parse_json(text)["bucket"])
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"{where} is not that of gpucluster: it names no bucket",
            next_step=f"compare the tags of {instance} with those of {cluster}; pulumi up replaces a wrong head",
        ) from error
