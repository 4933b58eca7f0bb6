package bench

import (
	"math"
	"slices"
	"time"
)

// A Result is the measurement of one operation at one size.
type Result struct {
	Op        string  `json:"op"`
	Ranks     int     `json:"ranks"`
	Bytes     int64   `json:"bytes"` // of the vector; of all blocks, if it is divided among ranks
	Transport string  `json:"transport"`
	Encrypted bool    `json:"encrypted"`
	Iters     int     `json:"iters"`
	P50       float64 `json:"p50_us"` // median of the slowest rank, in microseconds
	P99       float64 `json:"p99_us"`
	Alg       float64 `json:"algbw_GBps"` // Bytes divided by P50, in 10⁹ bytes per second
	Bus       float64 `json:"busbw_GBps"` // load of the busiest link, in the same unit
	Wrong     int64   `json:"wrong"`      // wrong elements, over all ranks and runs

	// Algorithm is the algorithm of the calls, and Channels the number of its channels over links, or 0 in shared
	// memory. They are empty for operations that have only one, and for vectors on a device.
	Algorithm string `json:"algorithm,omitempty"`
	Channels  int    `json:"channels,omitempty"`

	Device string `json:"device,omitempty"` // with the vectors of rank 0, if they are not in memory of the host
}

// bandwidth computes the bandwidths. They are 0 for a single rank, which sends nothing.
func (r *Result) bandwidth(bus func(n float64) float64) {
	if r.P50 <= 0 || r.Bytes == 0 || r.Ranks == 1 {
		return
	}
	r.Alg = float64(r.Bytes) / (r.P50 * 1e3)
	r.Bus = r.Alg * bus(float64(r.Ranks))
}

// quantile returns the q-quantile of times, in microseconds: the smallest element of times that is not
// less than a fraction q of them. It sorts times.
func quantile(times []time.Duration, q float64) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	i := int(math.Ceil(q*float64(len(times)))) - 1
	return float64(times[max(i, 0)]) / float64(time.Microsecond)
}
