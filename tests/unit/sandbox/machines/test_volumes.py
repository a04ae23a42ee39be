"""The file of a volume exists as long as the volume, and the loop device request has the kernel's layout."""

import random
import struct

from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.machines import volumes


def test_file_of_a_deleted_volume_is_removed(tmp_path):
    model = CloudModel(random.Random(1))  # noqa: S311 - dice that fall the same each time
    (tmp_path / "vol-0abc").touch()
    (tmp_path / "notes").touch()
    volumes.AttachedVolumes(model, tmp_path, lambda _: None).step()
    assert [p.name for p in tmp_path.iterdir()] == ["notes"]


def test_loop_device_request_has_the_layout_of_the_kernel():
    packed = volumes._CONFIG.pack(7, 512, volumes._AUTOCLEAR)
    assert len(packed) == 304  # sizeof(struct loop_config)
    assert struct.unpack_from("=II", packed) == (7, 512)
    assert struct.unpack_from("=I", packed, 8 + 52) == (4,)  # info.lo_flags
