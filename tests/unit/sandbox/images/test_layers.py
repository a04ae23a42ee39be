"""Which cached layers a build removes."""

import os
import time
from pathlib import Path

from gpucluster.sandbox.images.layers import Image, mark_used, prune

OLD_S = 7200


def layer(folder: Path, name: str, *, age_s: float = OLD_S) -> Path:
    root = folder / name / "root"
    root.mkdir(parents=True)
    then = time.time() - age_s
    os.utime(root.parent, (then, then))
    return root


def test_old_layers_are_removed_and_needed_ones_stay(tmp_path: Path) -> None:
    for name in ("base-a", "base-b", "code-a"):
        layer(tmp_path, name)
    prune(tmp_path, "base-*", "base-b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base-b", "code-a"]


def test_layer_that_another_up_has_just_found_stays(tmp_path: Path) -> None:
    """Regression: a build of another commit removed it before the capsule that needs it had started."""
    root = layer(tmp_path, "base-a")
    mark_used(Image(name="base-a", layers=(root,)))
    prune(tmp_path, "base-*")
    assert root.exists()
