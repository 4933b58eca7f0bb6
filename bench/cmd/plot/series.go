package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/dustin/go-humanize"
	"gonum.org/v1/plot/plotter"
)

// chartsOf returns the chart of the times, and for simulations that of the busiest links.
func chartsOf(all []result) (charts []*chart, err error) {
	drawn := closest(all, curvesMax)
	var times, loads chart
	ops, ranks := make(map[string]bool), make(map[int]bool)
	for _, r := range all {
		ops[r.Op], ranks[r.Ranks] = true, true
	}
	for _, r := range all {
		if r.Bytes == 0 || r.Simulated > 0 && !drawn[seriesOf(r)] {
			continue
		}
		name := nameOf(r, len(ops) > 1, len(ranks) > 1)
		if y := max(r.Median, r.Simulated); y > 0 {
			l := times.named(name)
			at := plotter.XY{X: float64(r.Bytes), Y: y}
			l.measured = append(l.measured, at)
			if r.Best {
				l.best = append(l.best, at)
			}
			if r.Predicted > 0 {
				l.predicted = append(l.predicted, plotter.XY{X: at.X, Y: r.Predicted})
			}
		}
		if r.Busiest > 0 {
			l := loads.named(name)
			l.measured = append(l.measured, plotter.XY{X: float64(r.Bytes), Y: r.Busiest})
		}
	}
	if len(times.curves) == 0 {
		return nil, errNothing
	}
	times.title, times.vertical = titleOf(all, len(ops) > 1, len(ranks) > 1), "time"
	charts = append(charts, &times)
	if len(loads.curves) > 0 {
		loads.title, loads.vertical, loads.inBytes = "bytes over the busiest link between hosts", "bytes", true
		charts = append(charts, &loads)
	}
	return charts, nil
}

// titleOf returns a title with the operation, ranks and transport that all results have in common.
func titleOf(all []result, severalOps, severalRanks bool) string {
	r := all[0]
	title := ""
	if !severalOps {
		title = r.Op + ", "
	}
	if !severalRanks {
		title += humanize.Comma(int64(r.Ranks)) + " ranks, "
	}
	switch {
	case r.Simulated > 0:
		return title + r.Topology + ": simulated time, the best of each size circled"
	case r.Encrypted:
		title += r.Transport + " (encrypted)"
	default:
		title += r.Transport
	}
	if r.Device != "" {
		title += ", on " + r.Device
	}
	title += ": median time"
	if slices.ContainsFunc(all, func(r result) bool { return r.Predicted > 0 }) {
		title += "; dashed: predicted"
		if r.Device != "" {
			title += " for memory of the host"
		}
	}
	return title
}

// nameOf names the curve of a result. Algorithms of nexar bench without --algorithms are no part of it, nor are channels, since they
// change with the size.
func nameOf(r result, severalOps, severalRanks bool) string {
	name := r.Op
	if r.Simulated > 0 || r.Predicted > 0 {
		name = r.Algorithm
		if r.Shared {
			name += " in memory"
		}
		if severalOps {
			name = r.Op + " by " + name
		}
	}
	if severalRanks {
		name = fmt.Sprintf("%s, %d ranks", name, r.Ranks)
	}
	return name
}

// curvesMax is the largest number of curves of simulations: each has a color of its own, so that a reader tells them apart.
const curvesMax = 6

// A series is a curve: an algorithm of one operation and number of ranks.
type series struct {
	op, algorithm string
	ranks         int
}

func seriesOf(r result) series { return series{r.Op, r.Algorithm, r.Ranks} }

// closest returns the simulated series that come closest to the best time of their size, at most n.
func closest(all []result, n int) map[series]bool {
	type point struct {
		op    string
		ranks int
		bytes int64
	}
	best := make(map[point]float64)
	for _, r := range all {
		p := point{r.Op, r.Ranks, r.Bytes}
		if t, ok := best[p]; r.Simulated > 0 && (!ok || r.Simulated < t) {
			best[p] = r.Simulated
		}
	}
	ratios := make(map[series]float64) // the least to the best time
	for _, r := range all {
		if r.Simulated > 0 && r.Bytes > 0 {
			ratio := r.Simulated / best[point{r.Op, r.Ranks, r.Bytes}]
			if least, ok := ratios[seriesOf(r)]; !ok || ratio < least {
				ratios[seriesOf(r)] = ratio
			}
		}
	}
	order := slices.SortedFunc(maps.Keys(ratios), func(a, b series) int {
		return cmp.Or(cmp.Compare(ratios[a], ratios[b]), cmp.Compare(a.op, b.op), cmp.Compare(a.ranks, b.ranks), cmp.Compare(a.algorithm, b.algorithm))
	})
	drawn := make(map[series]bool)
	for _, s := range order[:min(n, len(order))] {
		drawn[s] = true
	}
	return drawn
}
