"""The accounts of a site from `sacctmgr dump`: recorded dumps of two versions, broken lines, and hostile names."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster import catalog
from gpucluster.importer.associations import fields_of, read_associations, read_uids
from gpucluster.importer.lines import Effect
from gpucluster.importer.made import FIRST_MADE_UP
from gpucluster.importer.run import Imported, import_files
from gpucluster.importer.site import Site
from gpucluster.importer.write_yaml import Value
from gpucluster.plan.model import Account, Limits, Qos
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text
from gpucluster.text import quoted

NAME = "a-z, 0-9, '.', '_' and '-', at most 64 characters, ending with a letter or digit, beginning with a letter"
TESTS = Path(__file__).parents[2]
RECORDED = TESTS / "recorded/sacctmgr"


def imported(folder: Path, dump: str, passwd: str = "") -> Imported:
    """The campus site with this dump."""
    shutil.copytree(TESTS / "support/sites/campus", folder, dirs_exist_ok=True)
    (folder / "assoc.dump").write_text(dump)
    (folder / "passwd").write_text(passwd)
    return import_files([folder, folder / "assoc.dump", folder / "passwd"], version="26.05")


def told(found: Imported) -> list[str]:
    return [f"{one.place.line}: {one.message}" for one in found.complaints if "assoc.dump" in one.place.file]


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_accounts_of_a_recorded_dump_are_those_of_the_plan(version: str, tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        (RECORDED / f"{version}-assoc.dump").read_text(),
        "vision:x:5001:5001::/home/vision:/bin/bash\n",
    )
    plan = resolve(inspect_text(found.text, "x.yaml", catalog.load()).result(), catalog.load())
    assert plan.slurm is not None
    assert plan.slurm.accounting is not None
    assert plan.slurm.accounting.accounts == (
        Account(name="product_1", parent="root", share=1, qos=("normal",)),
        Account(name="science", parent="root", share=3, qos=("normal", "urgent"), users=("speech",)),
        Account(
            name="research",
            parent="science",
            share=2,
            qos=("normal", "urgent"),
            users=("speech", "vision"),
            limits=Limits(gpus=24),
        ),
    )
    assert plan.slurm.accounting.qos == (Qos(name="urgent", priority=1000 if version == "26.05" else 0),)
    assert {user.name: user.uid for user in plan.users} == {"speech": FIRST_MADE_UP, "vision": 5001}
    assert [line.partition(": ")[2] for line in told(found)] == [
        "the account product_1: MaxJobs=5 is not imported: the spec has no field for it",
        "speech: the default account is research; a spec takes the first account of a user, science",
        "the user speech in science: GrpTRES=cpu=8 is not imported: the spec has no field for it",
        "the user speech in research: GrpTRES=cpu=8 is not imported: the spec has no field for it",
        "the user vision in research: Fairshare=7 is not imported: the spec has no field for it",
    ]
    made_up = "\n".join(found.made.sentences)
    assert f"the uid of 1 users is made up, from {FIRST_MADE_UP} (speech): " in made_up
    assert ("write priorities and limits of urgent" in made_up) is (version == "24.11")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "the line is none of `sacctmgr dump`"),
        ("Account - 'a':Fairshare=parent", "the account a: Fairshare=parent is not imported: a share is 1 to 1000000"),
        ("Account - 'A b'", "the account a b is not imported: 'a b' is not the name of an account: " + NAME + " or digit"),
        (f"Account - '{'a' * 65}'", f"the account {'a' * 65} is not imported: {quoted('a' * 65)} is not the name of an account: " + NAME + " or digit"),
        ("Account - 'a':MaxJobs=5", "the account a: MaxJobs=5 is not imported: the spec has no field for it"),
        ("Account - 'a':GrpTRES=cpu=5", "the account a: GrpTRES=cpu=5 is not imported: the spec has no field for it"),
        ("QOS - 'q':GrpTRESMins=cpu=5", "the QOS q: GrpTRESMins=cpu=5 is not imported: the spec has no field for it"),
        ("QOS - 'q':Priority=9999999", "the QOS q: Priority=9999999 is not imported: it is 0 to 1000000"),
        ("User - 'root':AdminLevel='Administrator'\nAccount - 'a'\nParent - 'a'\nUser - 'u':AdminLevel='Operator'",
         "the user u in a: AdminLevel=Operator is not imported: a spec has no operators or administrators of the database"),
        ("Account - 'a'\nParent - 'a'\nUser - 'u':Coordinator='a'", "the user u in a: Coordinator=a is not imported: a spec has no coordinators of accounts"),
        ("Account - 'a':QOS='normal,y'\nParent - 'a'\nUser - 'u':QOS='normal'", "the user u in a: QOS=normal is not imported: users of a spec have every QOS of their account, also y"),
        ("Account - 'a':QOS='normal,y'\nParent - 'a'\nUser - 'u':DefaultQOS='y'", "the user u in a: DefaultQOS=y is not imported: a job without --qos has normal, the first QOS of the account"),
        ("Account - 'a':GrpTRES='gres/gpu=8,cpu=64'", "the account a: GrpTRES=cpu=64 is not imported: the spec has no field for it"),
        ("Account - 'a':DefaultQOS='y':QOS='x'", "the account a: DefaultQOS=y is not imported: it is none of the QOS of the account"),
        ("Account - 'a':QOS='x,y'", "the account a: a job without --qos has x, and Slurm refuses it"),
        ("Account - 'a':QOS='normal,Y_1'", "the account a: the QOS Y_1 is not imported: 'Y_1' is not the name of a QOS: " + NAME),
        ("Parent - 'gone'\nAccount - 'a'", "the account a is not imported: gone above it is not"),
        ("Parent - 'gone'\nUser - 'u'", "the user u is not imported: its account gone is not"),
    ],
)  # fmt: skip
def test_line_that_a_spec_cannot_model_is_reported(line: str, message: str) -> None:
    site = Site()
    read_associations(site, "assoc.dump", f"Cluster - 'x'\nParent - 'root'\n{line}\n")
    assert [one.message for one in site.complaints] == [message]


LONG = "dept-of_physics.".ljust(64, "x")


def test_names_of_a_real_site_are_imported(tmp_path: Path) -> None:
    """Regression: `anna.b` and an account with more than 24 characters were lost."""
    found = imported(
        tmp_path,
        f"Parent - 'root'\nQOS - 'q{LONG[1:]}':Priority=5\nAccount - '{LONG}':QOS='normal,q{LONG[1:]}'\nAccount - '1234567'\n"
        f"Parent - '{LONG}'\nUser - 'anna.b':DefaultAccount='{LONG}'\n",
        "anna.b:x:5001:5001::/home/anna.b:/bin/bash\n",
    )
    assert told(found) == []
    spec = inspect_text(found.text, "x.yaml", catalog.load()).result()
    assert [(one.name, one.users) for one in spec.accounts] == [(LONG, ("anna.b",)), ("1234567", ())]
    assert [one.name for one in spec.qos] == [f"q{LONG[1:]}"]
    assert [(user.name, user.uid) for user in spec.users] == [("anna.b", 5001)]


@pytest.mark.parametrize("name", ["Anna", "anna b", ".anna", "-anna", "anna.", "9anna", "a" * 32, "12345"])
def test_user_whose_name_a_machine_may_refuse_is_reported(name: str) -> None:
    """The database has names in lower case; a name of digits is a uid to many programs."""
    site = Site()
    read_associations(site, "f", f"Parent - 'root'\nAccount - 'a'\nParent - 'a'\nUser - '{name}'\n")
    (complaint,) = site.complaints
    assert complaint.message.startswith(
        f"the user {name} is not imported: {name!r} is not a user's name: use "
    )
    assert complaint.effect is Effect.REFUSED


def test_qos_with_an_underscore_is_imported() -> None:
    site = Site()
    text = "QOS - 'gpu_long':Priority=5\nParent - 'root'\nAccount - 'a':QOS='gpu_long'\n"
    parts, _ = fields_of(site, read_associations(site, "f", text), {})
    assert (parts["qos"], site.complaints) == ([{"name": "gpu_long", "priority": 5}], [])


def test_mixed_limit_keeps_its_gpus_and_the_name_of_an_account_is_in_lower_case() -> None:
    """Regression: the GPU part of a mixed GrpTRES was lost."""
    site = Site()
    text = (
        "Parent - 'root'\nAccount - 'Phys_Lab':GrpTRES='gres/gpu=8,cpu=64'\nParent - 'Phys_Lab'\nUser - 'u'\n"
    )
    parts, _ = fields_of(site, read_associations(site, "f", text), {})
    assert parts["accounts"] == [{"name": "phys_lab", "users": ["u"], "limits": {"gpus": 8}}]


def test_qos_has_its_priority_preemption_and_limits() -> None:
    site = Site()
    text = (
        "QOS - 'normal':Description='Normal QOS default'\n"
        "QOS - 'urgent':Priority=1000:Preempt='normal,gone':GrpTRES=gres/gpu=64:MaxTRESPerUser=gres/gpu=16\n"
        "Cluster - 'x'\nParent - 'root'\nAccount - 'a':QOS='urgent'\n"
    )
    parts, _ = fields_of(site, read_associations(site, "f", text), {})
    assert parts["qos"] == [
        {
            "name": "urgent",
            "priority": 1000,
            "preempts": ["normal"],
            "limits": {"gpus": 64, "gpus_per_user": 16},
        }
    ]
    assert site.complaints == []


@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(text: str) -> None:
    site = Site()
    found = read_associations(site, "f", f"Parent - 'root'\nAccount - 'a'\n{text}\nUser - '{text}':{text}\n")
    fields_of(site, found, read_uids(text))
    assert "a" in found.accounts or site.complaints


def test_passwd_gives_uids_of_any_length() -> None:
    """Regression: the ids of a directory have 10 digits."""
    text = "root:x:0:0::/root:/bin/sh\nada:x:1234567890:1000::/:/bin/sh\nbob:x:no:1::/:\nbroken\n"
    assert read_uids(text) == {"root": 0, "ada": 1_234_567_890}


PEOPLE = """\
Parent - 'root'
Account - 'a'
Parent - 'a'
User - 'ann'
User - 'bob'
User - 'daemon'
"""


@pytest.mark.parametrize("uid", [850, 61_200, 2_100_000_000])
def test_user_whose_uid_a_spec_does_not_take_is_named(uid: int, tmp_path: Path) -> None:
    """Regression: the user had a made-up uid without a line."""
    found = imported(tmp_path, PEOPLE, f"ann:x:{uid}:100::/home/ann:/bin/sh\nbob:x:5001:100::/:/bin/sh\n")
    spec = inspect_text(found.text, "x.yaml", catalog.load()).result()
    assert [(user.name, user.uid) for user in spec.users] == [("ann", FIRST_MADE_UP), ("bob", 5001)]
    (told,) = (one for one in found.complaints if "the user ann" in one.message)
    assert told.message.startswith(f"the user ann: the uid {uid} of `passwd` is not imported: ")
    assert told.message.endswith(f"; files of {uid} are not those of {FIRST_MADE_UP}")
    assert (told.place.line, told.effect) == (4, Effect.REFUSED)
    assert "the uid of" not in found.text


def test_made_up_uids_are_those_of_users_in_the_spec(tmp_path: Path) -> None:
    """Regression: a user that the rules refuse was counted."""
    found = imported(tmp_path, PEOPLE)
    assert f"# the uid of 2 users is made up, from {FIRST_MADE_UP} (ann, bob): " in found.text
    many = "".join(f"User - 'u{i}'\n" for i in range(1, 10))
    found = imported(tmp_path, PEOPLE.replace("User - 'daemon'\n", many))
    assert f"the uid of 11 users is made up, from {FIRST_MADE_UP} (ann, bob, u1, ...): " in found.text


@pytest.mark.parametrize(
    ("line", "effect", "message"),
    [
        ("User - 'daemon':DefaultAccount='a'", Effect.REFUSED, "the user daemon is not imported: "),
        ("Account - 'b':GrpTRES='gres/gpu=0'", None, "the limit gpus of b is not imported: "),
        ("Account - 'b_1':GrpTRES='gres/gpu=0'", None, "the limit gpus of b_1 is not imported: "),
    ],
)
def test_part_of_a_dump_that_the_rules_refuse_costs_itself_alone(
    line: str, effect: Effect | None, message: str, tmp_path: Path
) -> None:
    """Regression: one GPU limit on a site without GPUs dropped all accounts, and with them the rules of each partition."""
    (tmp_path / "slurm.conf").write_text("NodeName=n CPUs=4\nPartitionName=p Nodes=n AllowAccounts=a\n")
    (tmp_path / "assoc.dump").write_text(
        f"Parent - 'root'\nAccount - 'a'\nParent - 'a'\nUser - 'ann':DefaultAccount='a'\n{line}\n"
    )
    found = import_files([tmp_path, tmp_path / "assoc.dump"], version="26.05")
    spec = inspect_text(found.text, "x.yaml", catalog.load()).result()
    assert [user.name for user in spec.users] == ["ann"]
    assert spec.accounts[0].users == ("ann",)
    assert spec.partitions[0].accounts == ("a",)
    (complaint,) = found.complaints
    assert complaint.message.startswith(message)
    assert complaint.effect is effect


TREE = """\
Cluster - 'x':QOS='normal'
Parent - 'root'
Account - 'phys':{phys}
Parent - 'phys'
Account - 'sub':{sub}
Parent - 'sub'
User - 'ann':{ann}
"""


def accounts_of(
    phys: str, sub: str, ann: str = "Fairshare=1"
) -> tuple[list[Value], list[tuple[object, str]]]:
    """The QOS of each account, and the complaints with their headings."""
    site = Site()
    parts, _ = fields_of(site, read_associations(site, "f", TREE.format(phys=phys, sub=sub, ann=ann)), {})
    accounts = parts["accounts"]
    assert isinstance(accounts, list)
    listed = [one.get("qos") for one in accounts if isinstance(one, dict)]
    return listed, [(one.effect, one.message) for one in site.complaints]


@pytest.mark.parametrize(
    ("sub", "expected"),
    [
        ("QOS='+scav'", ["normal", "high", "scav"]),
        ("QOS='-high'", ["normal"]),
        ("QOS='normal'", ["normal"]),
        ("QOS='-high,+scav'", ["normal", "scav"]),
        ("QOS='-gone,+high'", None),
        ("QOS='scav'", ["scav"]),
        ("DefaultQOS='high'", ["high", "normal"]),
        ("DefaultQOS='scav':QOS='+scav'", ["scav", "normal", "high"]),
        ("QOS='high,normal'", None),
    ],
)  # fmt: skip
def test_qos_with_a_sign_adds_to_what_the_account_inherits(sub: str, expected: list[str] | None) -> None:
    """Regression: `+scav` took the QOS of the parent away, and `-high` gave `high`.

    Without a default, a job has `normal`. None: the account of the spec has the QOS of its parent."""
    assert accounts_of("QOS='normal,high'", sub) == ([["normal", "high"], expected], [])


def test_account_below_has_the_default_qos_of_its_parent() -> None:
    listed = [["high", "normal"], ["high", "normal", "scav"]]
    assert accounts_of("QOS='normal,high':DefaultQOS='high'", "QOS='normal,high,scav'") == (listed, [])


@pytest.mark.parametrize(
    ("qos", "effect", "why"),
    [
        ("+high", None, ""),
        ("-gone", None, ""),
        ("+scav", Effect.REFUSED, "users of a spec have only the QOS of their account, not scav"),
        ("-high", Effect.WIDER, "users of a spec have every QOS of their account, also high"),
    ],
)
def test_qos_of_a_user_with_a_sign_is_compared_as_a_whole(qos: str, effect: Effect | None, why: str) -> None:
    _, told = accounts_of("QOS='normal,high'", "Fairshare=1", f"QOS='{qos}'")
    said = f"the user ann in sub: QOS={qos} is not imported: {why}"
    assert told == ([(effect, said)] if effect else [])


@pytest.mark.parametrize(
    ("phys", "sub", "who"),
    [
        ("QOS='high,scav'", "Fairshare=1", "phys"),
        ("QOS='normal,high':DefaultQOS='high'", "QOS='-high'", "sub"),
        ("QOS='scav'", "QOS='+high'", "sub"),
        ("QOS='scav'", "Fairshare=1", ""),
        ("QOS='high,scav':DefaultQOS='scav'", "QOS='-high'", ""),
    ],
)
def test_account_whose_jobs_must_name_a_qos_is_reported(phys: str, sub: str, who: str) -> None:
    """Slurm has no QOS for a job without --qos if the default, also an inherited one, is none of several QOS."""
    _, told = accounts_of(phys, sub)
    said = [message.partition(":")[0] for _, message in told if "a job without --qos has" in message]
    assert said == ([f"the account {who}"] if who else [])


@pytest.mark.parametrize("qos", ["-normal", "Y_1"])
def test_account_without_a_qos_gets_normal_and_is_reported(qos: str) -> None:
    listed, told = accounts_of("Fairshare=1", f"QOS='{qos}'")
    assert listed == [None, None]
    why = "an account of a spec has a QOS, and without one it is normal"
    assert (Effect.WIDER, f"the account sub: QOS={qos} is not imported: {why}") in told


@pytest.mark.parametrize(
    "line",
    [
        "Account - 'chem':Description='Prof. O'Brien lab':Organization='chem':Fairshare=2",
        "Account - 'chem':Fairshare=2:Description='O'Brien''",
        "Account - 'chem':Description='':Organization='a: b':Fairshare=2",
    ],
)
def test_value_with_an_apostrophe_ends_where_the_next_key_begins(line: str) -> None:
    """Regression: the account and its users were lost."""
    site = Site()
    text = f"Parent - 'root'\n{line}\nParent - 'chem'\nUser - 'ann'\n"
    parts, _ = fields_of(site, read_associations(site, "f", text), {})
    assert parts["accounts"] == [{"name": "chem", "share": 2, "users": ["ann"]}]
    assert site.complaints == []


@pytest.mark.parametrize(
    ("line", "who"),
    [
        ("Account - 'chem':Fairshare", "the account chem"),
        ("User - 'bob':Fairshare", "the user bob"),
        ("Parent - 'chem' x", "the parent chem"),
        ("QOS - 'long':Priority", "the QOS long"),
        ("Cluster - 'x':QOS", "the cluster x"),
    ],
)
def test_line_of_a_dump_that_cannot_be_read_costs_jobs(line: str, who: str) -> None:
    """Regression: it was under no heading, and the users below an unread parent came into the account before it."""
    site = Site()
    text = f"Parent - 'root'\nAccount - 'phys'\nParent - 'phys'\n{line}\nUser - 'ann'\n"
    found = read_associations(site, "f", text)
    first, *others = site.complaints
    assert (first.message, first.effect) == (
        f"{who} is not imported: its line cannot be read",
        Effect.REFUSED,
    )
    below = "the user ann is not imported: its account chem is not"
    assert [one.message for one in others] == ([below] if "Parent" in line else [])
    assert found.accounts["phys"].users == (() if "Parent" in line else ("ann",))


@pytest.mark.parametrize(
    ("flag", "effect", "why"),
    [
        ("PartitionTimeLimit", Effect.REFUSED, "its jobs have the longest time of the partition"),
        ("PartitionMaxNodes", Effect.REFUSED, "its jobs have the most nodes of the partition"),
        ("PartitionMinNodes", Effect.REFUSED, "its jobs have the fewest nodes of the partition"),
        ("OverPartQOS", Effect.REFUSED, "its jobs have the limits of the partition's QOS"),
        ("RequiresReservation", Effect.WIDER, "its jobs need no reservation"),
        ("EnforceUsageThreshold", Effect.WIDER, "its jobs are not held below UsageThreshold"),
        ("DenyOnLimit", None, "a job above a limit waits instead of being refused"),
        ("NoReserve", None, "the spec has no field for it"),
    ],
)  # fmt: skip
def test_flag_of_a_qos_is_under_its_heading(flag: str, effect: Effect | None, why: str) -> None:
    """Regression: jobs above the limits of their partition were not named."""
    site = Site()
    read_associations(site, "f", f"QOS - 'q':Flags='{flag}'\n")
    (told,) = site.complaints
    assert (told.effect, told.message) == (effect, f"the QOS q: Flags={flag} is not imported: {why}")


def test_each_flag_of_a_qos_has_a_line() -> None:
    site = Site()
    read_associations(site, "f", "QOS - 'q':Flags=overpartqos,NoDecay\n")
    assert [one.effect for one in site.complaints] == [Effect.REFUSED, None]


def test_limits_of_a_qos_in_percent_are_no_numbers_of_gpus() -> None:
    """Regression: 50 percent of the GPUs became 50 GPUs."""
    site = Site(gres_names=frozenset({"gpu"}))
    found = read_associations(site, "f", "QOS - 'q':Flags='Relative':GrpTRES='gres/gpu=50'\n")
    assert found.defined["q"].limits == {}
    assert [(one.effect, one.message.partition(" is ")[0]) for one in site.complaints] == [
        (Effect.WIDER, "the QOS q: GrpTRES=gres/gpu=50"),
        (None, "the QOS q: Flags=Relative"),
    ]


def test_default_account_that_was_not_imported_is_reported() -> None:
    site = Site()
    text = "Parent - 'root'\nAccount - 'a'\nParent - 'a'\nUser - 'ann':DefaultAccount='b_'\n"
    fields_of(site, read_associations(site, "f", text), {})
    assert [(one.place.line, one.message, one.effect) for one in site.complaints] == [
        (4, "ann: the default account is b_, which is not imported; a spec takes the first account of a user, a", None)
    ]  # fmt: skip
