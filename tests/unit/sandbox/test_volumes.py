"""A volume's file is there as long as the volume, and the kernel is told of it in its own layout."""

import random
import struct

from gpucluster.cloud.model import CloudModel
from gpucluster.sandbox import volumes


def test_the_file_of_a_volume_that_is_gone_goes(tmp_path):
    model = CloudModel(random.Random(1))  # noqa: S311 - dice that fall the same each time
    (tmp_path / "vol-0abc").touch()
    (tmp_path / "notes").touch()
    volumes.Disks(model, tmp_path, lambda _: None).step()
    assert [p.name for p in tmp_path.iterdir()] == ["notes"]


def test_the_loop_devices_order_is_laid_out_as_the_kernel_reads_it():
    packed = volumes._CONFIG.pack(7, 512, volumes._AUTOCLEAR)
    assert len(packed) == 304  # sizeof(struct loop_config)
    assert struct.unpack_from("=II", packed) == (7, 512)
    assert struct.unpack_from("=I", packed, 8 + 52) == (4,)  # info.lo_flags
