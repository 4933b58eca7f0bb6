"""Measures torch.distributed with Gloo for vectors on a GPU: gloo.py RANKS BYTES,BYTES...

Each rank is a process. Times are medians of the slowest rank, and begin after a barrier, like those of nexar bench.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = int(sys.argv[1])
SIZES = [int(n) for n in sys.argv[2].split(",")]


def measure(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.cuda.set_device(rank % torch.cuda.device_count())
    for size in SIZES:
        vector = torch.empty(size // 4, device="cuda")
        times = []
        for _ in range(20 if size > 1 << 22 else 100):
            vector.fill_(1)
            torch.cuda.synchronize()
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(vector)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        assert bool((vector == RANKS).all())
        median = torch.tensor([sorted(times)[len(times) // 2]], dtype=torch.float64)
        dist.all_reduce(median, op=dist.ReduceOp.MAX)
        if rank == 0:
            print(f"{size:>10} B {median.item() * 1e6:>10.0f} µs", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(measure, nprocs=RANKS)
