# pyright: basic, reportMissingImports=false
"""All-reduce over all GPUs of the job: wrong sums end it with an error, and rank 0 prints the bus bandwidth.

torchrun starts it once for each GPU. Bus bandwidth as NCCL's tests define it: bytes / time * 2 (n - 1) / n.
"""

import sys
import time

import torch
import torch.distributed as dist

MIB = 1024 * 1024
SIZES = (1 * MIB, 64 * MIB, 1024 * MIB)
ROUNDS = 20

dist.init_process_group("nccl")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank % torch.cuda.device_count())
wrong = 0
for size in SIZES:
    data = torch.empty(size // 4, dtype=torch.float32, device="cuda")
    data.fill_(rank)
    dist.all_reduce(data)
    wrong += int((data != ranks * (ranks - 1) / 2).sum())
    data.zero_()
    torch.cuda.synchronize()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(ROUNDS):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    took = (time.perf_counter() - start) / ROUNDS
    if rank == 0:
        speed = size / took * 2 * (ranks - 1) / ranks / 1e9
        sys.stdout.write(f"all_reduce of {size // MIB} MiB over {ranks} GPUs: {speed:.1f} GB/s\n")
dist.destroy_process_group()
if wrong:
    sys.exit(f"rank {rank}: {wrong} wrong values")
