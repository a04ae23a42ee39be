"""The bundle: same bytes each time, and nothing hostile comes out of one."""

import contextlib
import gzip
import io
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.artifacts import MANIFEST, Artifact, pack, unpack, write_tree

PATHS = st.lists(
    st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8}){0,2}\.conf", fullmatch=True), unique=True, max_size=6
)


@given(PATHS, st.binary(max_size=200), st.randoms(use_true_random=False))
def test_the_bundle_does_not_depend_on_the_order_and_comes_back_whole(paths, content, order):
    artifacts = [Artifact(path, content + path.encode()) for path in paths]
    shuffled = list(artifacts)
    order.shuffle(shuffled)
    assert pack(artifacts) == pack(shuffled)
    assert unpack(pack(shuffled)) == tuple(sorted(artifacts))


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", ""])
def test_a_path_that_leaves_the_root_is_refused(path):
    with pytest.raises(ValueError, match="stays below the root"):
        Artifact(path, b"")


def test_two_artifacts_with_one_path_are_refused():
    with pytest.raises(ValueError, match="same path"):
        pack([Artifact("a", b"1"), Artifact("a", b"2")])


def test_a_bundle_whose_file_was_changed_is_refused_by_name():
    raw = bytearray(gzip.decompress(pack([Artifact("slurm/slurm.conf", b"ClusterName=one")])))
    at = raw.index(b"ClusterName=one")
    raw[at : at + 15] = b"ClusterName=two"
    with pytest.raises(ValueError, match=r"slurm/slurm\.conf"):
        unpack(gzip.compress(bytes(raw)))


def test_a_link_in_a_bundle_is_refused():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("slurm.conf")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/shadow"
        tar.addfile(info)
    with pytest.raises(ValueError, match="only plain files"):
        unpack(gzip.compress(out.getvalue()))


def tar_of(members: list[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
MEMBERS = st.lists(st.tuples(st.text(min_size=1, max_size=12), st.binary(max_size=40)), max_size=4)
GOOD = gzip.decompress(pack([Artifact("slurm/slurm.conf", b"ClusterName=one"), Artifact("plan.json", b"{}")]))


@given(data=st.binary(max_size=300))
def test_any_bytes_are_no_bundle(data: bytes) -> None:
    for one in (data, gzip.compress(data)):
        with pytest.raises(ValueError, match=r"\S"):
            unpack(one)


@given(members=MEMBERS, manifest=JSON)
def test_any_members_with_any_manifest_are_a_bundle_or_a_value_error(
    members: list[tuple[str, bytes]], manifest: Any
) -> None:
    whole = tar_of([*members, (MANIFEST, json.dumps(manifest).encode())])
    with contextlib.suppress(ValueError):
        assert len(unpack(gzip.compress(whole))) == len(manifest)


@pytest.mark.parametrize("manifest", [[], None, 3, "x"])
def test_manifest_that_is_no_table_is_a_value_error(manifest: object) -> None:
    """Regression: it ended the agent, which began again and read it again."""
    whole = tar_of([("a", b""), (MANIFEST, json.dumps(manifest).encode())])
    with pytest.raises(ValueError, match="differ from its manifest: a"):
        unpack(gzip.compress(whole))


@given(at=st.integers(0, len(GOOD) - 1), byte=st.integers(0, 255), end=st.integers(0, len(GOOD)))
def test_any_changed_byte_or_end_is_a_bundle_or_a_value_error(at: int, byte: int, end: int) -> None:
    changed = bytearray(GOOD)
    changed[at] = byte
    for one in (bytes(changed), GOOD[:end]):
        with contextlib.suppress(ValueError):
            assert [a.path for a in unpack(gzip.compress(one))] == ["plan.json", "slurm/slurm.conf"]


def test_headers_without_an_end_are_a_value_error() -> None:
    """Regression: tarfile calls itself for each header of a long name, until Python has no more depth."""
    long = tarfile.TarInfo("././@LongLink")
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, 4
    block = long.tobuf(tarfile.GNU_FORMAT) + b"name".ljust(512, b"\0")
    with pytest.raises(ValueError, match="no whole archive"):
        unpack(gzip.compress(block * 3_000))


def test_a_sparse_file_is_refused_before_its_zeros_are_made() -> None:
    """512 bytes of an archive may stand for a terabyte."""
    info = tarfile.TarInfo("zeros")
    info.pax_headers = {"GNU.sparse.size": str(2**40), "GNU.sparse.numblocks": "0", "GNU.sparse.map": "0,0"}
    head = info.tobuf(tarfile.PAX_FORMAT)
    with pytest.raises(ValueError, match="only plain files"):
        unpack(gzip.compress(head + bytes(1024)))


def test_an_archive_in_the_archive_is_not_unpacked_beyond_the_limit() -> None:
    """Regression: tarfile unpacks xz by itself, so the limit held for the outer bytes alone."""
    with pytest.raises(ValueError, match="no whole archive"):
        unpack(gzip.compress(lzma.compress(GOOD)))


def test_a_tree_is_written_with_its_modes(tmp_path):
    write_tree([Artifact("bin/hook", b"x", 0o755), Artifact("a.conf", b"y")], tmp_path)
    assert (tmp_path / "bin/hook").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "a.conf").read_bytes() == b"y"


@pytest.mark.parametrize("link", ["slurm", "slurm/slurm.conf", "slurm/dangling.conf"])
def test_a_tree_is_written_through_no_link(tmp_path: Path, link: str) -> None:
    """In a shared folder a link of another user led `render --to` to a file of the caller."""
    (tmp_path / "other").mkdir()
    (tmp_path / "victim").write_text("mine")
    root = tmp_path / "root"
    (root / link).parent.mkdir(parents=True)
    targets = {"slurm": "other", "slurm/slurm.conf": "victim", "slurm/dangling.conf": "nothing"}
    (root / link).symlink_to(tmp_path / targets[link])
    files = [Artifact(path, b"new") for path in ("plan.json", "slurm/slurm.conf", "slurm/dangling.conf")]
    with pytest.raises(OSError, match="is a symbolic link"):
        write_tree(files, root)
    assert (tmp_path / "victim").read_text() == "mine"
    assert not list((tmp_path / "other").iterdir())
    assert not (tmp_path / "nothing").exists()
    assert not (root / "plan.json").exists()


def test_the_root_of_a_tree_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    write_tree([Artifact("plan.json", b"new", 0o600)], tmp_path / "root")
    assert (tmp_path / "real/plan.json").stat().st_mode & 0o777 == 0o600
