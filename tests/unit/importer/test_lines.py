"""Hostile and broken files: what can be read is imported, the rest is reported by file and line, nothing else is read."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpucluster import catalog
from gpucluster.errors import GpuclusterError
from gpucluster.importer.files import Folder
from gpucluster.importer.lines import MAX_COMPLAINTS, MAX_DEPTH, Effect, FileLine, Reader
from gpucluster.importer.run import Imported, import_files
from gpucluster.importer.site import Site
from gpucluster.spec import inspect_text

GOOD = "ClusterName=c\nSlurmctldHost=ctl(10.0.0.1)\nNodeName=n[1-2] NodeAddr=10.0.0.[2-3] CPUs=4\nPartitionName=p Nodes=n[1-2]\n"
SITES = Path(__file__).parents[2] / "support/sites"


def _of(folder: Path, text: str, **others: str) -> Imported:
    (folder / "slurm.conf").write_text(text)
    for name, content in others.items():
        (folder / f"{name}.conf").write_text(content)
    return import_files([folder / "slurm.conf"], version="24.11")


def _told(found: Imported, folder: Path) -> list[str]:
    return [str(complaint).replace(f"{folder}/", "") for complaint in found.complaints]


BROKEN = [
    ("a word without a value", "garbage\n", "slurm.conf:5: 'garbage' is not key=value; it is not imported"),
    ("a word behind a value", "KillWait=30 seconds\n", "slurm.conf:5: 'seconds' is not key=value; it is not imported"),
    ("an open bracket", "NodeName=x[1- CPUs=1\n", "slurm.conf:5: NodeName='x[1-' is not a hostlist: expected names such as gpu[01-04], separated by commas; the line is not imported"),
    ("a huge range", "NodeName=x[1-999999999] CPUs=1\n", "slurm.conf:5: NodeName='x[1-999999999]' is not a hostlist: it has 999999999 names, more than 65536; the line is not imported"),
    ("a node twice", "NodeName=n1 CPUs=2\n", "slurm.conf:5: the node 'n1' is defined twice; the first line counts"),
    ("a partition twice", "PartitionName=p Nodes=n1\n", "slurm.conf:5: the partition 'p' is defined twice; the first line counts"),
    ("an unknown node", "PartitionName=q Nodes=n1,n7\n", "slurm.conf:5: 'n7' of Nodes is not the name of a node"),
    ("too few addresses", "NodeName=m[1-3] NodeAddr=10.0.1.[1-2]\n", "slurm.conf:5: NodeAddr='10.0.1.[1-2]' is not imported: it has 2 names for 3 nodes"),
    ("front ends", "FrontendName=f[1-2]\n", "slurm.conf:5: FrontendName is refused: each node of gpucluster runs its own slurmd, and Slurm 25.05 has removed front-end mode"),
    ("a node line in the middle", "KillWait=30 NodeName=n9\n", "slurm.conf:5: NodeName must begin its line; it is not imported"),
    ("a missing include", "Include more.conf\n", "slurm.conf:5: 'more.conf' is not read: there is no such file beside slurm.conf"),
    ("an include of everything", "include conf.d/*.conf\n", "slurm.conf:5: 'conf.d/*.conf' is not read: Slurm does not expand wildcards in an Include"),
    ("an include from elsewhere", "include /etc/hostname\n", "slurm.conf:5: '/etc/hostname' is not read: it is not beside slurm.conf; copy it there, or name it: hostname"),
    ("an include from above", "include ../../etc/hostname\n", "slurm.conf:5: '../../etc/hostname' is not read: it is not beside slurm.conf; copy it there, or name it: hostname"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_broken_line_is_reported_and_the_rest_is_imported(tmp_path: Path, text: str, told: str) -> None:
    found = _of(tmp_path, GOOD + text)
    assert _told(found, tmp_path) == [told]
    assert {"n1", "n2"} <= found.made.nodes.keys()


def test_file_that_includes_itself_ends(tmp_path: Path) -> None:
    found = _of(tmp_path, f"{GOOD}include loop.conf\n", loop="include loop.conf\n")
    assert _told(found, tmp_path) == [
        f"loop.conf:1: includes are nested deeper than {MAX_DEPTH}; 'loop.conf' is not read"
    ]


def test_include_with_a_name_longer_than_a_file_name_is_reported(tmp_path: Path) -> None:
    """The file system's error ended the import."""
    (told,) = _told(_of(tmp_path, f"{GOOD}include {'x' * 300}\n"), tmp_path)
    assert "there is no such file beside slurm.conf" in told


def test_many_includes_of_includes_end(tmp_path: Path) -> None:
    found = _of(
        tmp_path, f"{GOOD}include a.conf\n", a="include b.conf\n" * 100, b="include c.conf\n" * 100, c=""
    )
    assert any("more than 200 files are included" in told for told in _told(found, tmp_path))


def test_link_and_pipe_are_not_read(tmp_path: Path) -> None:
    outside = tmp_path / "secret.conf"
    outside.write_text("MailProg=/secret\n")
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "link.conf").symlink_to(outside)
    os.mkfifo(folder / "pipe.conf")
    found = _of(folder, f"{GOOD}include link.conf\ninclude pipe.conf\n")
    assert _told(found, folder) == [
        "slurm.conf:5: 'link.conf' is not read: there is no such file beside slurm.conf",
        "slurm.conf:6: 'pipe.conf' is not read: there is no such file beside slurm.conf",
    ]
    assert all(row.key != "MailProg" or row.before is None for row in found.differences)


def test_named_file_is_read_for_an_absolute_include(tmp_path: Path) -> None:
    folder, other = tmp_path / "site", tmp_path / "elsewhere"
    folder.mkdir()
    other.mkdir()
    (folder / "slurm.conf").write_text(f"{GOOD}include /etc/slurm/more.conf\n")
    (other / "more.conf").write_text("NodeName=m1 CPUs=1\nPartitionName=q Nodes=m1\n")
    found = import_files([folder / "slurm.conf", other / "more.conf"], version="24.11")
    assert not found.complaints
    assert "m1" in found.made.nodes


def test_file_that_nothing_includes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(GOOD)
    (tmp_path / "more.conf").write_text("")
    with pytest.raises(GpuclusterError, match=r"more\.conf: slurm\.conf does not include it"):
        import_files([tmp_path / "slurm.conf", tmp_path / "more.conf"], version="24.11")


def test_large_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GpuclusterError, match="it is larger than 4 MiB"):
        _of(tmp_path, "#" * (4 << 20) + "\n")


def test_complaints_of_one_file_are_bounded(tmp_path: Path) -> None:
    found = _of(tmp_path, GOOD + "nonsense\n" * 5000)
    assert len(found.complaints) == MAX_COMPLAINTS + 1


def test_file_without_nodes_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(
        GpuclusterError, match="no node of the files can be imported: there is no NodeName line"
    ):
        _of(tmp_path, "ClusterName=c\n")


def test_dynamic_nodes_are_reported(tmp_path: Path) -> None:
    with pytest.raises(GpuclusterError, match=r"its nodes are dynamic \(MaxNodeCount\)"):
        _of(tmp_path, "MaxNodeCount=100\nNodeSet=a Feature=a\nPartitionName=p Nodes=a\n")


def test_continuation_comment_and_case(tmp_path: Path) -> None:
    text = "clustername=c # here\nNODENAME=n1 cpus=4 \\  \nrealMemory=8000 # there\npartitionname=P.1 nodes=ALL \\\n  maxtime=60\n"
    found = _of(tmp_path, text)
    assert not found.complaints
    same = {row.key.lower() for row in found.differences if row.change == "same"}
    assert {"nodename", "cpus", "realmemory", "partitionname", "nodes", "maxtime", "clustername"} <= same


@pytest.mark.parametrize("name", ["gpu_long", "std.q", "x" * 41, "2"])
def test_refused_value_is_left_out_whatever_the_name_of_its_partition(tmp_path: Path, name: str) -> None:
    """Regression: a path names such a partition by its index, so its value stayed in the spec, and the import did not end."""
    lines = f"PartitionName=one Nodes=ALL PriorityJobFactor=5\nPartitionName={name} Nodes=ALL PriorityJobFactor=.q\n"
    found = _of(tmp_path, GOOD + lines)
    spec = inspect_text(found.text, "c.yaml", catalog.load()).result()
    extra = {
        part.name: {key: value for key, value in part.extra.items() if key != "DefMemPerCPU"}
        for part in spec.partitions
    }
    assert extra == {"p": {}, "one": {"PriorityJobFactor": "5"}, name: {}}
    (lost,) = (row for row in found.differences if row.before == ".q")
    assert (lost.names, "is a whole number of 0 to 65535" in lost.why) == ((name,), True)


_SEEDS = [path.read_text() for path in sorted(SITES.glob("*/slurm.conf"))]
_CHUNKS = st.sampled_from(
    ["NodeName=", "PartitionName=", "Nodes=ALL", "[", "]", "[1-9]", ",", "=", "\\\n", "#", '"', "\n", " ", "DEFAULT", "\0", "é", "Include ", "slurm.conf", "MaxTime=-5", "CPUs=0", "Gres=gpu:", "x" * 300, "RealMemory=999999999999", "State=FUTURE", "{{ x }}"]
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.sampled_from(_SEEDS),
    cuts=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 40), _CHUNKS), max_size=12),
)
def test_changed_files_are_imported_or_refused_in_words(
    tmp_path: Path, seed: str, cuts: list[tuple[int, int, str]]
) -> None:
    text = seed
    for at, length, chunk in cuts:
        place = at % (len(text) + 1)
        text = text[:place] + chunk + text[place + length :]
    (tmp_path / "slurm.conf").write_bytes(text.encode())
    try:
        found = import_files([tmp_path / "slurm.conf"], version="24.11")
    except GpuclusterError as error:
        refused = str(error)
    else:
        refused = ""
        assert found.text
    assert "this is a bug" not in refused


def test_mark_of_the_byte_order_is_no_word(tmp_path: Path) -> None:
    """Regression: the first word failed, and the rest of its line became keys of slurm.conf."""
    more = "\ufeffPartitionName=DEFAULT AllowGroups=staff\nPartitionName=hp Nodes=n1\n"
    found = _of(tmp_path, f"\ufeff{GOOD}include more.conf\n", more=more)
    assert not [one for one in found.complaints if "AllowGroups of partition" not in one.message]
    assert 'extra: {AllowGroups: staff, DefMemPerCPU: "0"}' in found.text


@pytest.mark.parametrize("first", ["PartitionName hq", "Partition-Name=hq"])
def test_rest_of_a_line_whose_first_word_fails_is_no_key_of_the_file(first: str, tmp_path: Path) -> None:
    found = _of(tmp_path, f"{GOOD}{first} Nodes=n1 KillWait=31 AllowGroups=staff\n")
    assert _told(found, tmp_path)[-1] == (
        "slurm.conf:5: its first word is wrong, so the rest is not imported: Nodes, KillWait, AllowGroups"
    )
    assert found.complaints[-1].effect is Effect.REFUSED
    assert not {"Nodes", "AllowGroups", "KillWait"} & {
        row.key for row in found.differences if row.kind == "slurm.conf" and row.before is not None
    }


def test_folder_on_a_line_whose_first_word_fails_is_not_that_of_all_nodes(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(f"JobContainerType=job_container/tmpfs\n{GOOD}")
    (tmp_path / "job_container.conf").write_text("BasePath=/local/a\nNodeName n1 BasePath=none\n")
    found = import_files([tmp_path], version="24.11")
    assert 'private_tmp: {path: "/local/a"}' in found.text


def test_line_with_its_first_key_behind_a_wrong_word_is_imported(tmp_path: Path) -> None:
    found = _of(tmp_path, f"{GOOD}xx PartitionName=hp Nodes=n1 LLN=yes\n")
    assert _told(found, tmp_path) == ["slurm.conf:5: 'xx' is not key=value; it is not imported"]
    assert 'LLN: "yes"' in found.text


def test_default_line_whose_first_word_fails_keeps_the_partitions_closed(tmp_path: Path) -> None:
    found = _of(tmp_path, f"{GOOD}PartitionName DEFAULT AllowGroups=staff\nPartitionName=hp Nodes=n1\n")
    assert "AllowGroups: staff" in found.text.partition("name: hp")[2]


@pytest.mark.parametrize("word", ['AllowGroups="staff', 'AllowGroups="staff"x', 'RootOnly="yes'])
def test_partition_whose_rule_is_no_word_is_down(word: str, tmp_path: Path) -> None:
    """It was written without the rule, so everybody could use it."""
    found = _of(tmp_path, f"{GOOD}PartitionName=hp Nodes=n1 {word}\n")
    assert "State: DOWN" in found.text.partition("name: hp")[2]
    assert any("the partition hp is DOWN" in one for one in found.made.made_up)


QUOTE = "has a quote that ends no value; Slurm takes it as a part of the value"


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ('Epilog="/etc/e.sh', "Epilog", '"/etc/e.sh'),
        ('JobSubmitPlugins="lua', "JobSubmitPlugins", '"lua'),
        ('TmpFS="a"b', "TmpFS", '"a"b'),
        ('PartitionName=q Nodes=n1 DenyAccounts="lab', "DenyAccounts", '"lab'),
        ('PartitionName="q"x Nodes=n1', "PartitionName", '"q"x'),
    ],
)
def test_quote_that_ends_no_value_is_a_part_of_it(line: str, key: str, value: str, tmp_path: Path) -> None:
    """keyvalue_pattern of parse_config.c: what is no quoted value is one without blanks."""
    found = _of(tmp_path, f"{GOOD}{line}\n")
    assert _told(found, tmp_path) == [f"slurm.conf:5: {key} {QUOTE}"]
    assert (key, value) in {(row.key, row.before) for row in found.differences}


def test_line_of_many_words_takes_no_square_of_its_time(tmp_path: Path) -> None:
    """Regression: the rest of the line was copied at each word."""

    def cpu_time(words: int) -> float:
        times = list[float]()
        for _ in range(3):
            start = time.process_time()
            list(Reader(Folder(tmp_path)).statements("slurm.conf", "a=b " * words))
            times.append(time.process_time() - start)
        return max(0.001, min(times))

    assert cpu_time(96_000) < 24 * cpu_time(12_000)


def test_partition_without_nodes_is_read(tmp_path: Path) -> None:
    """Regression: an empty list was said to be no hostlist."""
    assert not _of(tmp_path, f'{GOOD}PartitionName=q Nodes=""\n').complaints


def test_many_complaints_take_no_square_of_their_time() -> None:
    """Regression: each was compared with all before it."""

    def cpu_time(count: int) -> float:
        times = list[float]()
        for _ in range(3):
            start, site = time.process_time(), Site()
            for line in range(count):
                site.complain(FileLine("f", line), "m")
            times.append(time.process_time() - start)
        return max(0.001, min(times))

    assert cpu_time(4_000) < 24 * cpu_time(500)


@pytest.mark.parametrize("key", ["Prolog", "Epilog", "PrologSlurmctld", "EpilogSlurmctld"])
def test_each_program_of_a_repeated_key_is_told(key: str, tmp_path: Path) -> None:
    """slurm.conf(5): these keys may stand on several lines, and each program runs. Of another key the last line counts."""
    lines = f"{key}=/etc/a.sh --pw x\n{key.lower()}=/etc/b.sh\nKillWait=31\nKillWait=32\n"
    found = _of(tmp_path, f"{GOOD}{lines}")
    rows = {row.key: row for row in found.differences if row.before is not None}
    assert (rows[key].before, str(rows[key].place)[-1]) == ("/etc/a.sh and /etc/b.sh", "5")
    assert rows["KillWait"].before == "32"
    assert "write `health`" in rows[key].why or "Slurmctld" in key


PLUGSTACK = "# comment\nrequired  /usr/lib/slurm/private.so --pw hunter2\noptional spank_pyxis.so runtime_path=/run\ninclude plugstack.conf.d/*\n"


@pytest.mark.parametrize("named", [False, True])
def test_spank_plugins_are_told(named: bool, tmp_path: Path) -> None:
    """Slurm reads plugstack.conf beside slurm.conf without a line that names it (slurm.conf(5), PlugStackConfig)."""
    (tmp_path / "slurm.conf").write_text(GOOD)
    (tmp_path / "plugstack.conf").write_text(PLUGSTACK)
    files = [tmp_path / "slurm.conf", tmp_path / "plugstack.conf"] if named else [tmp_path]
    found = import_files(files, version="26.05")
    assert [(told.partition(" is not imported")[0]) for told in _told(found, tmp_path)] == [
        "plugstack.conf:2: the plugin /usr/lib/slurm/private.so",
        "plugstack.conf:3: the plugin spank_pyxis.so",
        "plugstack.conf:4: the file plugstack.conf.d/*",
    ]
    assert {one.effect for one in found.complaints} == {Effect.REFUSED}
    assert "`slurm.containers`" in found.complaints[1].message
    assert not any("hunter2" in one.message for one in found.complaints)


def test_other_file_of_spank_plugins_is_under_a_heading(tmp_path: Path) -> None:
    found = _of(tmp_path, f"{GOOD}PlugStackConfig=/opt/plugstack.conf\n")
    (row,) = (row for row in found.differences if row.key == "PlugStackConfig")
    assert row.effect is Effect.REFUSED


@pytest.mark.parametrize("file", ["mpi.conf", "oci.conf", "acct_gather.conf", "resources.yaml"])
def test_file_that_slurm_reads_without_a_line_is_told(file: str, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(GOOD)
    (tmp_path / file).write_text("x=1\n")
    (told,) = _told(import_files([tmp_path], version="26.05"), tmp_path)
    assert told.startswith(f"{file}:1: the file is not imported: ")


def test_plugins_behind_many_comments_are_told_and_their_number_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(GOOD)
    (tmp_path / "plugstack.conf").write_text(
        "# x\n" * 300 + "required a.so\nwrong\n" + "optional b.so\n" * 9000
    )
    told = _told(import_files([tmp_path], version="26.05"), tmp_path)
    assert told[0].startswith("plugstack.conf:301: the plugin a.so")
    assert told[1] == "plugstack.conf:302: the line names no plugin, and is not imported"
    assert told[MAX_COMPLAINTS:] == ["plugstack.conf:501: and more plugins, which are not listed"]
