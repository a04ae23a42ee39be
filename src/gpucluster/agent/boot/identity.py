"""The machine's identity: from the file of its user data, and from the metadata service."""

from dataclasses import replace
from typing import Any, cast

from gpucluster.agent.boot.boot_state import BootState, Identity
from gpucluster.agent.machine import Machine, NotYetError, StepError
from gpucluster.json_text import parse_json
from gpucluster.plan import names

FIELDS = ("cluster", "region", "bucket", "key", "role")
HOST_FIELDS = ("cluster", "role", "node", "address", "folder")
ROLES = (names.ROLE_HEAD, names.ROLE_NODE, names.ROLE_LOGIN, names.ROLE_STANDBY)
LOCAL_REGION = ""  # the "region" of an existing host, whose bucket is a local folder


def from_user_data(machine: Machine, state: BootState) -> BootState:
    """Read the file that cloud-init writes, then query id and address. NotYetError while the file is missing or incomplete."""
    fields = _user_data(machine)
    return replace(
        state,
        identity=Identity(
            instance_id=machine.metadata("meta-data/instance-id"),
            address=machine.metadata("meta-data/local-ipv4"),
            name=str(_file_fields(machine).get("name") or ""),
            **fields,
        ),
    )


def role_if_known(machine: Machine) -> str | None:
    """Return the role; None if the file is not there yet."""
    try:
        return _user_data(machine)["role"]
    except (NotYetError, StepError):
        return None


def is_existing_host(machine: Machine) -> bool:
    """Return whether Ansible wrote the file, which makes this machine an existing host."""
    try:
        return bool(_file_fields(machine).get("folder"))
    except (NotYetError, StepError):
        return False


def from_host_file(machine: Machine, state: BootState) -> BootState:
    """Read the file that Ansible wrote. An existing host has no metadata service."""
    fields = _fields(_file_fields(machine), HOST_FIELDS)
    return replace(
        state,
        identity=Identity(
            instance_id=fields["node"],
            address=fields["address"],
            cluster=fields["cluster"],
            region=LOCAL_REGION,
            bucket=fields["folder"],
            key=names.BUNDLE_KEY,
            role=fields["role"],
        ),
    )


def _user_data(machine: Machine) -> dict[str, str]:
    return _fields(_file_fields(machine), FIELDS)


def _file_fields(machine: Machine) -> dict[str, Any]:
    text = machine.read(names.USER_DATA_FILE)
    try:
        found = parse_json(text)
    except ValueError as error:
        raise NotYetError(f"cloud-init has not written {names.USER_DATA_FILE} yet") from error
    if not isinstance(found, dict):
        raise StepError(f"{names.USER_DATA_FILE}: expected a JSON object")
    return cast("dict[str, Any]", found)


def _fields(fields: dict[str, Any], expected: tuple[str, ...]) -> dict[str, str]:
    wrong = [name for name in expected if not isinstance(fields.get(name), str) or not fields[name]]
    if wrong:
        raise StepError(f"{names.USER_DATA_FILE}: the fields {', '.join(wrong)} are missing, expected text")
    if fields["role"] not in ROLES:
        raise StepError(
            f"{names.USER_DATA_FILE}: role is {fields['role']!r}, expected one of {', '.join(ROLES)}"
        )
    return {name: fields[name] for name in expected}
