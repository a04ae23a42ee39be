"""The bundle: same bytes each time, and nothing hostile comes out of one."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.artifacts import Artifact, pack, unpack, write_tree

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
