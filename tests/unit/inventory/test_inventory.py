"""The inventory: who is where, who logs in, and that no host is talked to whose key is not known."""

import dataclasses
import json
import shlex
import string
from typing import Any

import jinja2
import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from support.builders import a_lab_plan
from support.host_rows import GOOD_KEY

from gpucluster.inventory.ansible import Cargo, inventory
from gpucluster.inventory.folder import yaml_text
from gpucluster.plan.model import SlurmOnHosts

CARGO = Cargo(bundle_digest="b", code_digest="c", wheel="/w.whl")


def of(plan: SlurmOnHosts, cargo: Cargo = CARGO) -> dict[str, Any]:
    return inventory(plan, cargo)["all"]


def test_the_head_and_a_group_for_each_pool() -> None:
    pool = "  - {name: big-mem, machine: hgx-h100, hosts: mem1, addresses: 192.0.2.20}\npartitions:"
    found = of(
        a_lab_plan(
            ("partitions:", pool),
            ("pools: [h100]", "pools: [h100, big-mem]"),
            ('"gpu[01-02]"', '"gpu[01-02],mem1"'),
        )
    )["children"]
    assert found["head"]["hosts"] == {"ctl0": {"ansible_host": "192.0.2.10"}}
    assert found["pool_h100"]["hosts"]["gpu04"] == {"ansible_host": "192.0.2.14"}
    assert found["pool_big_mem"]["hosts"] == {"mem1": {"ansible_host": "192.0.2.20"}}
    assert found["nodes"]["children"] == {"pool_h100": {}, "pool_big_mem": {}}


def test_no_host_is_talked_to_whose_key_is_not_known() -> None:
    found = of(a_lab_plan())["vars"]
    assert (found["ansible_user"], found["ansible_port"]) == ("admin", 22)
    assert found["ansible_host_key_checking"] is True
    assert found["ansible_ssh_common_args"] == "-o StrictHostKeyChecking=yes"
    assert found["ansible_pipelining"] is True  # or the key of munge would pass through files
    assert "ansible_ssh_private_key_file" not in found


def test_host_keys_of_ones_own_are_found_wherever_the_folder_stands() -> None:
    cargo = dataclasses.replace(CARGO, known_hosts=True)
    args = of(a_lab_plan(), cargo)["vars"]["ansible_ssh_common_args"]
    words = shlex.split(args.replace("{{ inventory_dir }}", "/a folder/of mine"))
    assert words[-2:] == ["-o", "GlobalKnownHostsFile=none"]
    assert '-o UserKnownHostsFile="/a folder/of mine/known_hosts"' in words


def test_the_head_exports_to_the_nodes_alone_and_binds_what_they_mount() -> None:
    found = of(a_lab_plan())["children"]
    head, nodes = found["head"]["vars"], found["nodes"]["vars"]
    assert head["exports"].split()[0] == "/srv/home"
    assert [word.partition("(")[0] for word in head["exports"].split()[1:]] == [
        f"192.0.2.{n}" for n in range(11, 15)
    ]
    assert [m["src"] for m in head["mounts"]] == ["/srv/home"]
    assert [(m["path"], m["src"], m["fstype"]) for m in nodes["mounts"]] == [
        ("/home", "192.0.2.10:/srv/home", "nfs4")
    ]
    assert (head["makes_homes"], nodes["makes_homes"]) == (True, False)


HOMES = [
    ("nobody's: each host has its own", "{mount: /data, nfs: {from: head, export: /srv/data}}", True, True),
    ("a server's: its own business", "{mount: /home, nfs: {server: 192.0.2.5, export: /h}}", False, False),
    ("the site's own file system", "{mount: /home, other: {type: beegfs, source: x}}", False, False),
]


@pytest.mark.parametrize(("storage", "head", "nodes"), [r[1:] for r in HOMES], ids=[r[0] for r in HOMES])
def test_who_makes_homes(storage: str, head: bool, nodes: bool) -> None:
    plan = a_lab_plan(("{mount: /home, nfs: {from: head, export: /srv/home}}", storage))
    found = of(plan)["children"]
    assert (found["head"]["vars"]["makes_homes"], found["nodes"]["vars"]["makes_homes"]) == (head, nodes)


def test_an_export_from_where_it_is_mounted_needs_no_bind() -> None:
    plan = a_lab_plan(("export: /srv/home", "export: /home"))
    assert of(plan)["children"]["head"]["vars"]["mounts"] == []


def test_people_and_their_keys() -> None:
    found = of(a_lab_plan(("uid: 5001", f"uid: 5001, keys: [{GOOD_KEY}]")))["vars"]
    assert found["people"] == [{"name": "vision", "uid": 5001, "keys": [GOOD_KEY]}]
    assert (found["people_ids"], found["names_and_uids"]) == (["vision:5001"], ["vision", "5001"])


def test_no_value_of_the_spec_is_a_template() -> None:
    """Ansible renders every text of an inventory: only our own `inventory_dir` may be one."""
    plan = a_lab_plan(("uid: 5001", f"uid: 5001, keys: [{GOOD_KEY}]"))
    environment = jinja2.Environment(autoescape=False)  # noqa: S701 - it is asked what it would do
    for text in _texts(inventory(plan, dataclasses.replace(CARGO, known_hosts=True))):
        rendered = environment.from_string(text).render(inventory_dir="{{ inventory_dir }}")
        assert rendered.rstrip("\n") == text.rstrip("\n")


AMBIGUOUS = ("no", "on", "y", "N", "Off", "null", "~", "1e3", "012", "0o14", "0x1f", "12:30", "1_000", ".5", ".inf", "-.nan",
             "2026-11-22", "<<", "=", "+1", "192.0.2.10", "true", "", " x", "a: b", "#c", "0b1", "190:20:30.15", "e3", "1.")  # fmt: skip


def test_ansible_reads_names_as_they_are_written() -> None:
    """Ansible reads YAML 1.1, in which the users `no` and `on` became false and true."""
    values = {"all": {"hosts": {name: {"ansible_host": name, "people": [name]} for name in AMBIGUOUS}}}
    text = yaml_text(values)
    assert DataLoader().load(text) == values
    assert YAML(typ="safe").load(text) == values


@given(
    st.dictionaries(
        st.text(string.printable[:95], max_size=8), st.text("0123456789:.eExo_+-ynoftrul~<= ", max_size=8)
    )
)
def test_yaml_1_1_and_1_2_agree_on_every_text(values: dict[str, str]) -> None:
    text = yaml_text(values)
    assert yaml.safe_load(text) == YAML(typ="safe").load(text) == values


def test_ansible_reads_the_whole_inventory_of_a_plan() -> None:
    made = inventory(
        a_lab_plan(("name: vision", "name: no"), ("uid: 5001", f"uid: 5001, keys: [{GOOD_KEY}]")), CARGO
    )
    assert made["all"]["vars"]["people"][0]["name"] == "no"
    assert DataLoader().load(yaml_text(made)) == json.loads(json.dumps(made))


def test_the_text_is_the_same_values_in_block_style() -> None:
    made = inventory(a_lab_plan(), CARGO)
    text = yaml_text(made)
    assert YAML(typ="safe").load(text) == json.loads(json.dumps(made))
    assert text == yaml_text(inventory(a_lab_plan(), CARGO))
    assert "{" not in text.replace("{{ inventory_dir }}", "").replace("pool_h100: {}", "")


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [t for k, v in value.items() for t in (str(k), *_texts(v))]
    if isinstance(value, list):
        return [t for v in value for t in _texts(v)]
    return [value] if isinstance(value, str) else []
