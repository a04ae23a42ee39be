"""A real client of PMIx, the library with which MPI programs find each other: init, a fence over all ranks, finalize.

The sizes and signatures are those of pmix.h, version 4 and 5: pmix_proc_t is char[256] and uint32_t.
"""

import ctypes
import os


class Proc(ctypes.Structure):
    """pmix_proc_t"""

    _fields_ = (("nspace", ctypes.c_char * 256), ("rank", ctypes.c_uint32))


library, me = ctypes.CDLL("libpmix.so.2"), Proc()
for name, answer in (
    ("PMIx_Init", lambda: library.PMIx_Init(ctypes.byref(me), None, ctypes.c_size_t(0))),
    ("PMIx_Fence", lambda: library.PMIx_Fence(None, ctypes.c_size_t(0), None, ctypes.c_size_t(0))),
    ("PMIx_Finalize", lambda: library.PMIx_Finalize(None, ctypes.c_size_t(0))),
):
    if (code := answer()) != 0:
        raise SystemExit(f"WRONG: {name} answered {code}")
print(f"rank {me.rank} of {os.environ['SLURM_NTASKS']} in {me.nspace.decode()}", flush=True)
