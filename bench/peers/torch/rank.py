"""One rank of the comparison on torch.distributed with Gloo.

../../README.md, "The protocol of the programs", describes the flags, the
output and the measurement.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

# The number of runs after which rank 0 first looks at the clock, and the largest number.
RUNS_FIRST, RUNS_MAX = 3, 1 << 20


def values(rank, first, count):
    """Elements of the input of a rank. Sums over ranks are exact."""
    return 1 + ((torch.arange(first, first + count) + 17 * rank) % 251).to(torch.float32)


def sums(ranks, first, count):
    return sum(values(r, first, count) for r in range(ranks))


class Operation:
    """An operation at one size, with its input and its expected result."""

    def __init__(self, name, bytes, buffers):
        self.name = name
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.count = bytes // 4
        self.block = max(self.count // self.ranks, 1)
        self.talks = self.rank in (0, self.ranks - 1)
        self.other = self.ranks - 1 - self.rank
        whole, blocks = self.count, self.block * self.ranks
        src, dst = {
            "all_reduce": (0, whole),
            "broadcast": (0, whole),
            "send_recv": (whole, whole),
            "all_gather": (self.block, blocks),
            "reduce_scatter": (blocks, self.block),
            "all_to_all": (blocks, blocks),
            "barrier": (0, 0),
        }[name]
        self.src, self.dst = buffers[0][:src], buffers[1][:dst]

    def run(self):
        getattr(self, self.name)()

    def all_reduce(self):
        dist.all_reduce(self.dst)

    def broadcast(self):
        dist.broadcast(self.dst, 0)

    def all_gather(self):
        dist.all_gather_into_tensor(self.dst, self.src)

    def reduce_scatter(self):
        dist.reduce_scatter_tensor(self.dst, self.src)

    def all_to_all(self):
        dist.all_to_all_single(self.dst, self.src)

    def barrier(self):
        dist.barrier()

    def send_recv(self):
        if self.rank == 0:
            dist.send(self.src, self.other)
            dist.recv(self.dst, self.other)
        elif self.talks:
            dist.recv(self.dst, self.other)
            dist.send(self.src, self.other)

    def fill(self):
        self.src.copy_(values(self.rank, 0, len(self.src)))
        self.dst.zero_()
        if self.name == "all_reduce" or self.name == "broadcast" and self.rank == 0:
            self.dst.copy_(values(self.rank, 0, self.count))

    def want(self):
        own = self.rank * self.block
        match self.name:
            case "all_reduce":
                return sums(self.ranks, 0, self.count)
            case "broadcast":
                return values(0, 0, self.count)
            case "reduce_scatter":
                return sums(self.ranks, own, self.block)
            case "all_gather":
                return torch.cat([values(r, 0, self.block) for r in range(self.ranks)])
            case "all_to_all":
                return torch.cat([values(r, own, self.block) for r in range(self.ranks)])
            case "send_recv" if self.talks:
                return values(self.other, 0, self.count)
        return self.dst

    def wrong(self):
        """Runs the operation once and returns the number of wrong elements."""
        self.fill()
        dist.barrier()
        self.run()
        wrong = int((self.dst != self.want()).sum())
        self.clear()
        return wrong

    def clear(self):
        """Sets the vectors to zero, so that repeated sums do not grow."""
        self.src.zero_()
        self.dst.zero_()

    def rewrite(self):
        """Writes the input anew, so that no rank finds it in its own cache."""
        if self.name == "all_reduce" or self.name == "broadcast" and self.rank == 0:
            self.dst.fill_(1)
        elif self.name != "broadcast":
            self.src.fill_(1)

    def once(self, untouched):
        if not untouched:
            self.rewrite()
        dist.barrier()
        began = time.perf_counter()
        self.run()
        took = time.perf_counter() - began
        return took / 2 if self.name == "send_recv" else took

    def repeat(self, untouched, budget):
        """Returns the times of runs until the budget is spent."""
        times, following, began = [], RUNS_FIRST, time.perf_counter()
        while following:
            start = time.perf_counter()
            times += [self.once(untouched) for _ in range(following)]
            now = time.perf_counter()
            fit = int((budget - (now - began)) / ((now - start) / following))
            following = agreed(max(0, min(fit, 2 * len(times), RUNS_MAX - len(times))))  # Rank 0 decides.
        return times


def agreed(n):
    """Returns rank 0's number on all ranks."""
    t = torch.tensor([n])
    dist.broadcast(t, 0)
    return int(t)


def measure(op, bytes, args):
    wrong = op.wrong()
    for untouched in [False, True] if args.untouched and bytes else [False]:
        if untouched:
            op.clear()
        if args.warm:
            op.repeat(untouched, args.warm)
        times = op.repeat(untouched, args.budget)
        say(op=op.name, bytes=bytes, untouched=untouched, ranks=op.ranks, rank=op.rank, iters=len(times),
            median_us=round(statistics.median(times) * 1e6, 3), wrong=wrong)


def say(**line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def parse_sizes(text):
    return [int(size) for size in text.split(",")]


def main():
    flags = argparse.ArgumentParser(allow_abbrev=False)
    flags.add_argument("-ops", required=True)
    flags.add_argument("-sizes", required=True, type=parse_sizes)
    flags.add_argument("-budget", type=float, default=1)
    flags.add_argument("-warm", type=float, default=0)
    flags.add_argument("-untouched", type=int, default=0)
    flags.add_argument("-rank", type=int, required=True)
    flags.add_argument("-ranks", type=int, required=True)
    flags.add_argument("-store", required=True)
    flags.add_argument("-iface", default="lo")
    flags.add_argument("-first")  # for systems without a store
    args = flags.parse_args()

    torch.set_num_threads(1)  # The default of torchrun for several ranks on a host.
    os.environ["GLOO_SOCKET_IFNAME"] = args.iface
    store = os.path.join(args.store, "torch")
    dist.init_process_group("gloo", init_method="file://" + store, rank=args.rank, world_size=args.ranks)
    if args.rank == 0:
        say(about=f"torch.distributed {torch.__version__}, Gloo, TCP")
    floats = max(args.sizes) // 4 + args.ranks
    buffers = torch.zeros(floats), torch.zeros(floats)
    for name in args.ops.split(","):
        for bytes in args.sizes if name != "barrier" else [0]:
            try:
                measure(Operation(name, bytes, buffers), bytes, args)
            except (RuntimeError, ValueError, NotImplementedError) as e:
                if "support" not in str(e) and "implement" not in str(e):
                    raise
                if args.rank == 0:
                    say(op=name, unsupported=str(e).splitlines()[0])
                break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
