"""Who this machine is: its user data's one file, and the metadata service."""

import json
from dataclasses import replace
from typing import Any, cast

from gpucluster.node.known import Identity, Known
from gpucluster.node.machine import Machine, NotYetError, StepError
from gpucluster.plan import names

FIELDS = ("cluster", "region", "bucket", "key", "role")


def find(machine: Machine, known: Known) -> Known:
    """Read the file that cloud-init writes (perhaps not yet, perhaps half), then ask for id and address."""
    told = _user_data(machine)
    return replace(
        known,
        identity=Identity(
            instance_id=machine.metadata("meta-data/instance-id"),
            address=machine.metadata("meta-data/local-ipv4"),
            **told,
        ),
    )


def role_told(machine: Machine) -> str | None:
    """The role, if the file is there already."""
    try:
        return _user_data(machine)["role"]
    except (NotYetError, StepError):
        return None


def _user_data(machine: Machine) -> dict[str, str]:
    text = machine.read(names.USER_DATA_FILE)
    try:
        told = json.loads(text)
    except ValueError as error:
        raise NotYetError(f"cloud-init has not written {names.USER_DATA_FILE} yet") from error
    if not isinstance(told, dict):
        raise StepError(f"{names.USER_DATA_FILE}: expected an object")
    fields = cast("dict[str, Any]", told)
    wrong = [name for name in FIELDS if not isinstance(fields.get(name), str) or not fields[name]]
    if wrong:
        raise StepError(f"{names.USER_DATA_FILE}: no {', '.join(wrong)}")
    if fields["role"] not in (names.ROLE_HEAD, names.ROLE_NODE):
        raise StepError(f"{names.USER_DATA_FILE}: role is {fields['role']!r}, expected head or node")
    return {name: fields[name] for name in FIELDS}
