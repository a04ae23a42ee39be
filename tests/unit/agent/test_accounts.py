"""Accounts on machines: equal everywhere, created once, locked but never removed, reported if the image already has the name."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_machine import FakeMachine, a_bundle, a_small_plan

from gpucluster.agent.boot import accounts, bundles, directory, identity
from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.machine import NotYetError, StepError
from gpucluster.plan import names
from gpucluster.plan.model import Directory, Efs, Mount, NfsFromHead, NfsFromServer, User
from gpucluster.shell import CommandError, Result

VISION, SPEECH = (
    User(name="vision", uid=5001, keys=("ssh-ed25519 AAA v",)),
    User(name="speech", uid=5002, keys=()),
)
BASE = "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/:/bin/false\n"


class People(FakeMachine):
    """Stand-ins of useradd and similar programs. They work on a folder."""

    def __post_init__(self):
        super().__post_init__()
        self.put(accounts.PASSWD, BASE)
        self.put(accounts.GROUP, "root:x:0:\ndaemon:x:1:\n")
        self.expired, self.hangs = {}, False

    def _outcome(self, argv, stdin, env):
        name = argv[-1]
        if argv[0] == "groupadd":
            self.put(accounts.GROUP, self.text(accounts.GROUP) + f"{name}:x:{argv[2]}:\n")
        elif argv[0] == "useradd":
            self.put(
                accounts.PASSWD,
                self.text(accounts.PASSWD) + f"{name}:x:{argv[2]}:{argv[4]}::/home/{name}:/bin/bash\n",
            )
        elif argv[0] == "usermod":
            self.expired[name] = argv[argv.index("--expiredate") + 1]
        elif argv[0] == "mkhomedir_helper":
            (self.root / "home" / argv[1]).mkdir(parents=True)
        elif argv[0] == "ls":
            if self.hangs:
                raise CommandError(Result(argv, 124, "", "not done after 10 s"))
            home = self.root / "home"
            return 0, "".join(f"{p.name}\n" for p in home.iterdir()) if home.is_dir() else ""
        return super()._outcome(argv, stdin, env)


def known(machine, plan):
    machine.services.objects[names.BUNDLE_KEY] = a_bundle(plan)
    found = identity.from_user_data(machine.machine(), BootState())
    return bundles.fetch(machine.machine(), found)


def settle(machine, *users, storage=()):
    plan = replace(a_small_plan(), users=users, storage=storage)
    accounts.apply(machine.machine(), known(machine, plan))


def test_programs_of_debian_take_a_name_with_a_dot(tmp_path: Path) -> None:
    """The real groupadd and useradd, on files of their own: neither has an option for bad names here."""
    (tmp_path / "etc").mkdir()
    for file in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid", "login.defs"):
        (tmp_path / "etc" / file).write_text("")
    for argv in (
        ["groupadd", "--prefix", str(tmp_path), "--gid", "5003", "anna.b"],
        [
            "useradd",
            "--prefix",
            str(tmp_path),
            "--uid",
            "5003",
            "--gid",
            "5003",
            "--no-create-home",
            "anna.b",
        ],
    ):
        try:
            subprocess.run(argv, check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip(f"this machine has no {argv[0]}")
    assert (tmp_path / "etc/passwd").read_text().startswith("anna.b:x:5003:5003:")


def test_people_have_the_plans_numbers_a_group_of_their_own_a_home_and_keys_that_root_writes(tmp_path):
    machine = People(tmp_path)
    settle(machine, VISION, SPEECH)
    assert "vision:x:5001:5001::/home/vision:/bin/bash" in machine.text(accounts.PASSWD)
    assert "speech:x:5002:" in machine.text(accounts.GROUP)
    assert machine.text(f"{names.KEY_FOLDER}/vision") == "ssh-ed25519 AAA v\n"
    assert [p.name for p in (tmp_path / "etc/ssh/authorized_keys.d").iterdir()] == ["vision"]
    assert sorted(p.name for p in (tmp_path / "home").iterdir()) == ["speech", "vision"]


def test_twice_changes_nothing(tmp_path):
    machine = People(tmp_path)
    settle(machine, VISION)
    before, calls = machine.snapshot(), len(machine.calls)
    settle(machine, VISION)
    assert (machine.snapshot(), machine.calls[calls:]) == (before, [("ls", "-1A", "/home")])


def test_removed_user_is_locked_keeps_files_and_can_return(tmp_path):
    machine = People(tmp_path)
    settle(machine, VISION, SPEECH)
    settle(machine, SPEECH)
    assert machine.expired == {"vision": "1"}
    assert not (tmp_path / "etc/ssh/authorized_keys.d/vision").exists()
    assert (tmp_path / "home/vision").is_dir()
    settle(machine, SPEECH)
    assert [c[:2] for c in machine.calls].count(("usermod", "--lock")) == 1
    settle(machine, VISION, SPEECH)
    assert machine.expired == {"vision": ""}


def test_removed_user_is_locked_even_if_another_user_fails(tmp_path):
    machine = People(tmp_path)
    settle(machine, VISION)
    machine.hangs = True  # a look at a dead file server ends with its program, and says so
    with pytest.raises(CommandError, match="not done after 10 s"):
        settle(machine, VISION)
    with pytest.raises(StepError, match="this machine has the user daemon"):
        settle(machine, User(name="daemon", uid=5009, keys=()))
    assert machine.expired == {"vision": "1"}
    assert not (tmp_path / "etc/ssh/authorized_keys.d/vision").exists()


def test_another_uid_is_applied_when_user_and_group_have_it(tmp_path):
    """`usermod` alone leaves the old gid: the step goes on failing until `groupmod`. The account is the agent's own, not the image's."""
    machine = People(tmp_path)
    settle(machine, SPEECH)
    other = replace(SPEECH, uid=5102)
    with pytest.raises(
        StepError, match="this machine has the user speech:5002, but the plan has speech:5102"
    ):
        settle(machine, other)
    machine.put(accounts.PASSWD, machine.text(accounts.PASSWD).replace("speech:x:5002", "speech:x:5102"))
    with pytest.raises(StepError, match="this machine has the group speech:5002"):
        settle(machine, other)
    machine.put(accounts.GROUP, machine.text(accounts.GROUP).replace("5002", "5102"))
    settle(machine, other)


def test_somebody_whom_we_did_not_make_is_never_locked(tmp_path):
    machine = People(tmp_path)
    machine.put(accounts.PASSWD, BASE + "ubuntu:x:1000:1000::/home/ubuntu:/bin/bash\n")
    settle(machine)
    assert machine.expired == {}


@pytest.mark.parametrize(
    ("file", "line", "said"),
    [
        (accounts.PASSWD, "vision:x:1000:1000::/:/bin/sh\n", "the user vision:1000, but the plan has vision:5001"),
        (accounts.PASSWD, "ubuntu:x:5001:5001::/:/bin/sh\n", "the user ubuntu:5001, but the plan has vision:5001"),
        (accounts.GROUP, "vision:x:77:\n", "the group vision:77"),
    ],
)  # fmt: skip
def test_used_name_or_uid_is_reported_before_any_change(tmp_path, file, line, said):
    machine = People(tmp_path)
    machine.put(file, machine.text(file) + line)
    before = machine.snapshot()
    with pytest.raises(StepError, match=said):
        settle(machine, SPEECH, VISION)
    assert {k: v for k, v in machine.snapshot().items() if "bundle" not in k} == before


HEAD_HOME = Mount(path="/home", source=NfsFromHead(server="10.42.0.10", export="/srv/home"))
SITE_HOME = Mount(path="/home", source=NfsFromServer(server="192.0.2.5", export="/srv/home"))


@pytest.mark.parametrize(
    ("storage", "role", "made"),
    [
        ((), names.ROLE_NODE, True),
        ((Mount(path="/home", source=Efs()),), names.ROLE_NODE, True),
        ((HEAD_HOME,), names.ROLE_HEAD, True),
        ((HEAD_HOME,), names.ROLE_LOGIN, False),
        ((SITE_HOME,), names.ROLE_HEAD, False),
    ],
)
def test_homes_are_made_where_root_may_write(storage, role, made):
    plan = replace(a_small_plan(), storage=storage)
    assert accounts.makes_homes(plan, role) is made


def test_running_node_takes_only_users_from_a_new_bundle(tmp_path):
    machine = People(tmp_path)
    booted = known(machine, replace(a_small_plan(), users=(SPEECH,)))
    accounts.apply(machine.machine(), booted)
    machine.services.objects[names.BUNDLE_KEY] = a_bundle(
        replace(a_small_plan(gpus=4), users=(VISION, SPEECH))
    )
    machine.clock += 100
    after = accounts.follow_bundle(machine.machine(), booted)
    assert "vision" in machine.text(accounts.PASSWD)
    assert after.bundle == booted.bundle
    machine.clock += 100
    assert accounts.follow_bundle(machine.machine(), after) == after


def test_bind_password_is_only_in_the_file_of_sssd(tmp_path):
    machine = People(tmp_path)
    machine.put(directory.NAMES, "passwd:         files\nhosts: files dns\n")
    machine.services.get_secret = lambda arn: b'{"bind_dn": "cn=reader", "password": "s3cret"}'
    plan = replace(
        a_small_plan(), directory=Directory(uri="ldaps://ldap.example.org", base="dc=example", secret="arn:x")
    )
    found = known(machine, plan)
    directory.configure(machine.machine(), found)
    text = machine.text(directory.FILE)
    assert "ldap_default_authtok = s3cret" in text
    assert "ldap_tls_reqcert = demand" in text
    assert (tmp_path / "etc/sssd/sssd.conf").stat().st_mode & 0o777 == 0o600
    assert machine.text(directory.NAMES) == "passwd:         files sss\nhosts: files dns\n"
    assert not any("s3cret" in word for call in machine.calls for word in call)
    calls = len(machine.calls)
    directory.configure(machine.machine(), found)
    assert [c for c in machine.calls[calls:] if c[:2] == ("systemctl", "restart")] == []


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, NotYetError),
        (b"two\nlines", StepError),
        (b'{"password": "a\\nb"}', StepError),
        (b"{}", StepError),
    ],
)
def test_invalid_secret_is_reported_without_its_text(tmp_path, value, error):
    machine = People(tmp_path)
    machine.services.get_secret = lambda arn: value
    plan = replace(a_small_plan(), directory=Directory(uri="ldap://x", base="dc=x", secret="arn:x"))
    with pytest.raises(error) as raised:
        directory.configure(machine.machine(), known(machine, plan))
    assert "two" not in str(raised.value)
