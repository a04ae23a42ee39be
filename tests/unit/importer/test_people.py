"""Groups of users and of partitions, and the files of accounts that stand in the site's folder."""

from pathlib import Path

import pytest

from gpucluster.importer.differences import Change
from gpucluster.importer.lines import Effect
from gpucluster.importer.run import Imported, import_files

CONF = """\
ClusterName=site
SlurmctldHost=ctl
NodeName=n1 CPUs=4 RealMemory=8000
PartitionName=main Nodes=n1 Default=YES
PartitionName=vis Nodes=n1 {rule}
"""
DUMP = """\
Cluster - 'site':Fairshare=1:QOS='normal'
QOS - 'high':Description='x':Priority=5
Parent - 'root'
Account - 'lab':QOS='normal,high'
Account - 'empty':QOS='normal,high'
Account - 'below'
Parent - 'below'
Account - 'deep'
Parent - 'lab'
User - 'anna':DefaultAccount='lab'
User - 'bob':DefaultAccount='lab'
Parent - 'deep'
User - 'cleo':DefaultAccount='deep'
"""
PASSWD = """\
anna:x:2001:2000::/home/anna:/bin/bash
bob:x:2002:2000::/home/bob:/bin/bash
cleo:x:2003:2003::/home/cleo:/bin/bash
zoe:x:2004:2000::/home/zoe:/bin/bash
"""
GROUP = "vision:x:2000:\ncuda:x:2100:bob,zoe\nlab:x:2200:bob\nanna:x:2001:\n"


def site(folder: Path, *, rule: str = "", **others: str) -> Path:
    """The folder of a site with these other files."""
    folder.mkdir(exist_ok=True)
    (folder / "slurm.conf").write_text(CONF.format(rule=rule))
    for name, text in others.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def people(found: Imported) -> list[tuple[Change, tuple[str, ...], str, str | None, str | None, str]]:
    return [
        (row.change, row.names, row.key, row.before, row.after, str(row.place).rpartition("/")[2])
        for row in found.differences
        if row.kind == "passwd"
    ]


def refused(found: Imported) -> list[str]:
    return [one.message for one in found.complaints if one.effect is Effect.REFUSED]


def test_groups_that_a_spec_cannot_have_are_lost(tmp_path: Path) -> None:
    """Regression: the gid of passwd was nowhere in the report."""
    folder = site(tmp_path, assoc_dump=DUMP, passwd=PASSWD)
    found = import_files([folder, folder / "assoc.dump", folder / "passwd"], version="26.05")
    own = "the uid"
    assert people(found) == [(Change.CHANGED, ("anna", "bob"), "gid", "2000", own, "passwd:1")]
    (folder / "group").write_text(GROUP)
    files = [folder, folder / "assoc.dump", folder / "passwd", folder / "group"]
    assert people(import_files(files, version="26.05")) == [
        (Change.LOST, ("bob",), "groups", "cuda,lab", None, "group:2"),
        (Change.CHANGED, ("anna", "bob"), "gid", "2000 (vision)", own, "passwd:1"),
    ]


GROUPS = (
    "AllowGroups of partition vis: a spec has no groups, and slurmctld asks the head for the members of {}. Jobs wait or are "
    "refused until the head knows them, for example by `groupadd` and `usermod --append --groups`"
)


@pytest.mark.parametrize(
    ("rule", "others", "said"),
    [
        ("AllowGroups=vision", {}, f"{GROUPS.format('vision')}; a file of `getent group > group` beside the others names them"),
        ("AllowGroups=vision,cuda", {"passwd": PASSWD, "group": GROUP}, f"{GROUPS.format('vision,cuda')}; of the imported users anna,bob are members"),
        ("AllowGroups=lab", {"passwd": PASSWD, "group": GROUP.replace("bob", "zoe")}, f"{GROUPS.format('lab')}; no imported user is a member"),
        ("AllowGroups=ALL", {}, ""),
        ("AllowAccounts=empty", {}, "AllowAccounts of partition vis: no imported user has empty; add the users in `accounts`"),
        ("AllowAccounts=empty,lab", {}, ""),
        ("AllowAccounts=below", {}, ""),
        ("AllowQos=high", {}, ""),
    ],
)  # fmt: skip
def test_rule_whose_members_are_not_imported_refuses_jobs(
    rule: str, others: dict[str, str], said: str, tmp_path: Path
) -> None:
    """Regression: AllowGroups was kept and nobody was in the group, so no job of the partition began."""
    folder = site(tmp_path, rule=rule, assoc_dump=DUMP, **others)
    files = [folder, folder / "assoc.dump", *(folder / name for name in others)]
    assert refused(import_files(files, version="26.05")) == ([said] if said else [])


def test_qos_that_no_imported_user_has_refuses_jobs(tmp_path: Path) -> None:
    dump = DUMP.replace("'lab':QOS='normal,high'", "'lab'")
    folder = site(tmp_path, rule="AllowQos=high", assoc_dump=dump)
    assert refused(import_files([folder, folder / "assoc.dump"], version="26.05")) == [
        "AllowQos of partition vis: no imported user has high; add the users in `accounts`"
    ]


def test_partition_that_is_down_has_no_other_line(tmp_path: Path) -> None:
    """Without the dump its AllowAccounts is lost, and nobody uses it."""
    folder = site(tmp_path, rule="AllowGroups=vision AllowAccounts=lab")
    assert refused(import_files([folder], version="26.05")) == []


def other_files(found: Imported) -> list[str]:
    """What is said of whole files."""
    return [
        f"{one.place.file.rpartition('/')[2]}: {one.message}"
        for one in found.complaints
        if "the file is not read" in one.message
    ]


def test_files_of_accounts_in_the_folder_are_read(tmp_path: Path) -> None:
    """Regression: the import said that the assoc.dump is to be added, and it lay beside slurm.conf."""
    folder = site(
        tmp_path, rule="AllowAccounts=lab AllowGroups=cuda", assoc_dump=DUMP, passwd=PASSWD, group=GROUP
    )
    found = import_files([folder], version="26.05")
    named = import_files(
        [folder, *(folder / name for name in ("assoc.dump", "passwd", "group"))], version="26.05"
    )
    assert found.text == named.text
    assert "{name: anna, uid: 2001}" in found.text
    assert (found.complaints, found.differences) == (named.complaints, named.differences)


OTHERS = "name it after the folder if it is the site's"


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"assoc_dump": DUMP.replace("'site'", "'test'")}, ["assoc.dump: the file is not read: it is of the cluster test, not site; " + OTHERS]),
        ({"assoc_dump": "nonsense"}, ["assoc.dump: the file is not read: it has no line of `sacctmgr dump` with the cluster; " + OTHERS]),
        ({"assoc_dump": DUMP, "site_dump": DUMP}, [f"{name}: the file is not read: another one is of the same kind; {OTHERS}" for name in ("assoc.dump", "site.dump")]),
        ({"assoc_dump": DUMP, "passwd": PASSWD + "+::::::\n"}, ["passwd: the file is not read: line 5 is none of `getent passwd`; " + OTHERS]),
        ({"assoc_dump": DUMP, "passwd": ""}, ["passwd: the file is not read: it is empty; " + OTHERS]),
        ({"assoc_dump": DUMP, "group": "vision 2000 anna\n"}, ["group: the file is not read: line 1 is none of `getent group`; " + OTHERS]),
        ({"assoc_sh": "sacctmgr dump\n", "notes_txt": "x"}, ["assoc.sh: the file is not read: it has no line of `sacctmgr dump` with the cluster; " + OTHERS]),
    ],
)  # fmt: skip
def test_file_that_may_be_of_another_site_is_told(
    others: dict[str, str], said: list[str], tmp_path: Path
) -> None:
    found = import_files([site(tmp_path, **others)], version="26.05")
    assert other_files(found) == said


def test_file_that_is_named_is_the_only_one_of_its_kind(tmp_path: Path) -> None:
    folder = site(tmp_path / "site", assoc_dump=DUMP.replace("'site'", "'test'"), passwd="x")
    (tmp_path / "my.dump").write_text(DUMP)
    found = import_files([folder, tmp_path / "my.dump"], version="26.05")
    assert [one.partition(":")[0] for one in other_files(found)] == ["passwd"]
    assert "name: anna" in found.text


def test_link_to_a_file_of_accounts_is_not_followed(tmp_path: Path) -> None:
    folder = site(tmp_path / "site", assoc_dump=DUMP)
    (tmp_path / "passwd").write_text(PASSWD)
    (folder / "passwd").symlink_to(tmp_path / "passwd")
    found = import_files([folder], version="26.05")
    assert "uid: 2001" not in found.text
    assert other_files(found) == [
        f"passwd: the file is not read: it is no plain file of the folder; {OTHERS}"
    ]


def test_names_of_one_number_have_the_same_members(tmp_path: Path) -> None:
    """Regression: a second name of a gid replaced the first. slurmctld lets the members of all names in."""
    group = "vision:x:2500:\nvision2:x:2500:anna\n"
    folder = site(tmp_path, rule="AllowGroups=vision", assoc_dump=DUMP, passwd=PASSWD, group=group)
    (line,) = refused(import_files([folder], version="26.05"))
    assert "of the imported users anna are members" in line
