package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nexar-go/nexar/cmd/nexar/internal/bench"
)

// benchLong is the manual of nexar bench.
func benchLong() string {
	return `Bench runs the operations of a cluster at growing sizes, checks every element
of every result, and prints a table.

By itself it starts COUNT processes on this host, which talk to each other
through shared memory, if the system has it. With --transport tcp or quic they
do as those of different hosts, and with mem the ranks are in one process.
Under "nexar run", or with NEXAR_SEEDS set, it is one rank of that
cluster, and rank 0 prints.

OPERATIONS
  ` + strings.Join(bench.Ops(), ", ") + `; or all

COLUMNS
  p50, p99  every rank measures each run from a barrier on; these are the
            median and the 99th percentile of the slowest rank. Of send_recv
            it is half the way there and back, between the first and the last
            rank
  algbw     bytes by p50
  busbw     algbw by a factor that makes it the load of the busiest link, as
            in NVIDIA's nccl-tests: 2(n-1)/n for all_reduce, 1 for broadcast,
            reduce, scans and send_recv, otherwise (n-1)/n
  wrong     elements with a wrong value, over all ranks and runs

Bytes are those of the vector; where it is cut by ranks (all_gather,
reduce_scatter, gather, scatter, all_to_all), those of all blocks together.

ALGORITHMS
  With --algorithms every collective is carried out by all algorithms that this
  communicator has for it, over links and in shared memory, in turn: A B C, B C
  A, in five to fifteen rounds, so that what disturbs the machine disturbs all.
  For each size there is a table, with the chosen algorithm first and then the
  others as the model ranks them:

  over       memory that the ranks share, or so many channels over links
  predicted  what the model from which algorithms are chosen says
  p50        median over the rounds, of the median that the slowest rank has in
             its turn; q1 and q3 are the quartiles
  ratio      p50 by predicted
  chosen     what a call takes, as NEXAR_ALGORITHMS has it or else the model
  fastest    the smallest p50

  Algorithms of which the model predicts more than ` + strconv.Itoa(bench.SlowerMax) + ` times what it does of the
  fastest are left out, which the table says. In the end it says of each
  operation at how many sizes the choice was within ` + fmt.Sprintf("%.0f", 100*(bench.NearBest-1)) + ` % of the fastest, and
  where it was worst. That a choice was bad is no error. "op=algorithm", for one
  in memory, or "op=algorithm/channels", for one over links, in NEXAR_ALGORITHMS
  or nexar.Comm.SetAlgorithms has it taken always.

JSON has one object on each line with the fields op, ranks, bytes, transport,
encrypted, iters, p50_us, p99_us, algbw_GBps, busbw_GBps, wrong. Bandwidths
are 0 where there are none: of a barrier, and of a single rank. With
--algorithms the fields are op, ranks, bytes, transport, encrypted, algorithm,
channels, shared, predicted_us, p50_us, q1_us, q3_us, chosen, fastest, wrong.

EXIT STATUS
  0  all was measured, and every result was right
  1  a result was wrong, or something could not be measured
  2  nexar bench was called wrongly`
}
