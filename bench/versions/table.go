package versions

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// A Ratio is the geometric mean, over the rounds, of the old version's time divided by the new
// version's time, with the bounds of its 95 % confidence interval.
type Ratio struct{ Mean, Low, High float64 }

// RatioOf returns the ratio of a row, from the pairs of times of each round, with Student's
// t-interval of their logarithms. With one round, both bounds equal the mean.
func RatioOf(s Samples) Ratio {
	logs := make([]float64, len(s.Old))
	for i := range logs {
		logs[i] = math.Log(s.Old[i] / s.New[i])
	}
	if len(logs) < 2 {
		r := math.Exp(logs[0])
		return Ratio{r, r, r}
	}
	mean, deviation := stat.MeanStdDev(logs, nil)
	n := float64(len(logs))
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975)
	half := t * deviation / math.Sqrt(n)
	return Ratio{math.Exp(mean), math.Exp(mean - half), math.Exp(mean + half)}
}

// A Verdict is the result of a comparison over all rows.
type Verdict struct {
	Mean   float64 // geometric mean of the ratios of all rows
	Slower []Row   // rows whose whole interval lies below the limit
}

// Judge returns the result over all rows. A row is slower if its whole interval lies below limit.
func Judge(rows []Samples, limit float64) (v Verdict) {
	sum := 0.0
	for _, s := range rows {
		r := RatioOf(s)
		sum += math.Log(r.Mean)
		if r.High < limit {
			v.Slower = append(v.Slower, s.Row)
		}
	}
	v.Mean = math.Exp(sum / float64(len(rows)))
	return v
}

// Print writes a table with a line for each row: the medians of both versions in microseconds and
// the ratio, above 1 where the new version is faster.
func Print(w io.Writer, rows []Samples, limit float64) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "setting\toperation\tbytes\told, µs\tnew, µs\tratio\t95 % interval\t")
	for _, s := range rows {
		r, note := RatioOf(s), ""
		if r.High < limit {
			note = "slower"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2f\t%.2f\t%.3f\t%.3f-%.3f\t%s\n", s.Row.Setting, s.Row.Op,
			humanize.IBytes(uint64(s.Row.Bytes)), median(s.Old), median(s.New), r.Mean, r.Low, r.High, note)
	}
	v := Judge(rows, limit)
	fmt.Fprintf(t, "all %d rows\t\t\t\t\t%.3f\tgeometric mean; %d slower than %.2f\t\n", len(rows), v.Mean, len(v.Slower), limit)
	return t.Flush()
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
