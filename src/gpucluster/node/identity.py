"""Who this machine is: its user data's one file, and the metadata service."""

import json
from dataclasses import replace
from typing import Any, cast

from gpucluster.node.known import Identity, Known
from gpucluster.node.machine import Machine, NotYetError, StepError
from gpucluster.plan import names

FIELDS = ("cluster", "region", "bucket", "key", "role")
HOST_FIELDS = ("cluster", "role", "node", "address", "folder")
ROLES = (names.ROLE_HEAD, names.ROLE_NODE, names.ROLE_LOGIN, names.ROLE_STANDBY)
HERE = ""  # the region of a bucket that is a folder of this machine


def find(machine: Machine, known: Known) -> Known:
    """Read the file that cloud-init writes (perhaps not yet, perhaps half), then ask for id and address."""
    told = _user_data(machine)
    return replace(
        known,
        identity=Identity(
            instance_id=machine.metadata("meta-data/instance-id"),
            address=machine.metadata("meta-data/local-ipv4"),
            name=str(_told(machine).get("name") or ""),
            **told,
        ),
    )


def role_told(machine: Machine) -> str | None:
    """The role, if the file is there already."""
    try:
        return _user_data(machine)["role"]
    except (NotYetError, StepError):
        return None


def is_host(machine: Machine) -> bool:
    """Whether Ansible wrote the file: a host that was there before the cluster."""
    try:
        return bool(_told(machine).get("folder"))
    except (NotYetError, StepError):
        return False


def of_host(machine: Machine, known: Known) -> Known:
    """Read the file that Ansible wrote; no service is asked."""
    told = _fields(_told(machine), HOST_FIELDS)
    return replace(
        known,
        identity=Identity(
            instance_id=told["node"],
            address=told["address"],
            cluster=told["cluster"],
            region=HERE,
            bucket=told["folder"],
            key=names.BUNDLE_KEY,
            role=told["role"],
        ),
    )


def _user_data(machine: Machine) -> dict[str, str]:
    return _fields(_told(machine), FIELDS)


def _told(machine: Machine) -> dict[str, Any]:
    text = machine.read(names.USER_DATA_FILE)
    try:
        told = json.loads(text)
    except ValueError as error:
        raise NotYetError(f"cloud-init has not written {names.USER_DATA_FILE} yet") from error
    if not isinstance(told, dict):
        raise StepError(f"{names.USER_DATA_FILE}: expected an object")
    return cast("dict[str, Any]", told)


def _fields(fields: dict[str, Any], expected: tuple[str, ...]) -> dict[str, str]:
    wrong = [name for name in expected if not isinstance(fields.get(name), str) or not fields[name]]
    if wrong:
        raise StepError(f"{names.USER_DATA_FILE}: no {', '.join(wrong)}")
    if fields["role"] not in ROLES:
        raise StepError(
            f"{names.USER_DATA_FILE}: role is {fields['role']!r}, expected one of {', '.join(ROLES)}"
        )
    return {name: fields[name] for name in expected}
