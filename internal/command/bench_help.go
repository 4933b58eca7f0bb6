package command

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nexar-go/nexar/internal/command/internal/bench"
)

// benchLong returns the help of nexar bench, with a part about devices.
func benchLong(devices string) string {
	return `Run the operations of a cluster at growing sizes, verify every element of every
result, and print a table of times.

By default COUNT processes on this host communicate through shared memory, if
the system has it. With --transport tcp or quic they communicate as processes of
different hosts do; with mem all ranks are in one process. Under "nexar run", or
with NEXAR_SEEDS set, nexar bench is one rank of that cluster, and rank 0 prints.

OPERATIONS
` + wrapped(strings.Join(bench.Ops(), ", ")+"; or all", "  ", 80) + `

COLUMNS
  p50, p99  median and 99th percentile of the slowest rank. Before each run
            there is a barrier; then every rank measures its own time. For
            send_recv, half of the round trip between the first and the last
            rank; for send_stream, a 16th of the time in which the first rank
            sends 16 messages and the last one receives and answers them
  algbw     bytes divided by p50, in GB/s (10⁹ bytes)
  busbw     algbw times a factor that makes it the load of the busiest link, as
            in NVIDIA's nccl-tests: 2(n-1)/n for all_reduce, 1 for broadcast,
            reduce, scans and messages, otherwise (n-1)/n
  wrong     wrong elements, over all ranks and runs

A size is the length of the vector in bytes. Where every rank has a block
(all_gather, reduce_scatter, gather, scatter, all_to_all) it is the length of all
blocks together.

ALGORITHMS
  With --algorithms every collective is measured with each of its algorithms, over
  links and in shared memory. The algorithms take turns in five to fifteen rounds
  (A B C, B C A), so that disturbances affect all alike. Each size has a table: the
  chosen algorithm, then the others by cost.

  over       shared memory, or a number of channels over links
  cost       predicted time by the model that chooses algorithms, divided by the
             least one: 1.00 is the best. The model ranks algorithms; its times
             are not exact
  p50        median over the rounds of the median of the slowest rank; q1 and q3
             are the quartiles
  ratio      p50 divided by the least p50; compare it with cost
  chosen     the algorithm of a call, by the model; "chosen by a setting" if by
             NEXAR_ALGORITHMS, "chosen by a hint" if by NEXAR_LARGE_MSG_BYTES,
             NEXAR_PIPELINE_SEGMENT_BYTES or NEXAR_RING_MAX_WORLD
  fastest    the smallest p50

  Algorithms with a cost of more than ` + strconv.Itoa(bench.SlowerMax) + ` are listed but not measured. At the end a
  line for each operation has the number of sizes at which the choice was within
  ` + fmt.Sprintf("%.0f", 100*(bench.NearBest-1)) + ` % of the fastest, and the worst size. A bad choice is not an error. To fix an
  algorithm, set NEXAR_ALGORITHMS or call Comm.SetAlgorithms with "op=algorithm" for
  shared memory or "op=algorithm/channels" for links.

A bar on a terminal, or a line on standard error every 10 s, shows what is measured and
the time left.

JSON is one object per line with the fields op, ranks, bytes, transport, encrypted,
iters, p50_us, p99_us, algbw_GBps, busbw_GBps, wrong, algorithm and, over links,
channels for a collective, and device if the vectors are not in memory of the
host. Bandwidths are 0 for a barrier and for one rank. With --algorithms the
fields are op, ranks, bytes, transport, encrypted, algorithm, channels, shared,
predicted_us, p50_us, q1_us, q3_us, chosen, chosen_by ("model", "setting",
"hint" or empty), fastest, wrong, and device as above.
predicted_us ranks the algorithms of one call; it is no forecast of p50_us.` + devices + `

EXIT STATUS
  0    everything was measured, and every result was right
  1    a result was wrong, or an operation could not be measured
  2    wrong usage
  130  ended by Ctrl-C`
}

// wrapped breaks a text into lines of at most width characters that begin with indent.
func wrapped(text, indent string, width int) string {
	lines, line := []string{}, indent
	for _, word := range strings.Fields(text) {
		if line != indent && len(line)+1+len(word) > width {
			lines, line = append(lines, line), indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}
