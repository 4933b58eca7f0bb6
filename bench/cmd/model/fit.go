package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/nexar-go/nexar/simulate"
)

// A model is a file for "nexar simulate --model".
type model map[string]any

// A parameter is a number of a model that is fitted. Files have times in the form of time.Duration, and rates with units.
type parameter struct {
	name string
	rate bool // bytes per second; otherwise seconds
}

// parameters are fitted one after the other.
func parameters() []parameter {
	return []parameter{
		{"memory-latency", false}, {"memory-message-time", false}, {"memory-copy-rate", true},
		{"switch-time", false}, {"poll-time", false}, {"wake-time", false},
	}
}

func readModel(file string) (model, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	m := make(model)
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return m, nil
}

// write writes a file with one line for each setting.
func (m model) write(file string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// get returns the value of a setting: seconds, bytes per second, or a number.
func (m model) get(name string) (float64, error) {
	switch v := m[name].(type) {
	case float64:
		return v, nil
	case string:
		if d, err := time.ParseDuration(v); err == nil {
			return d.Seconds(), nil
		}
		n, err := humanize.ParseBytes(v)
		return float64(n), err
	}
	return 0, fmt.Errorf("%s: missing", name)
}

// with returns the model with another value of a parameter.
func (m model) with(p parameter, value float64) model {
	changed := make(model, len(m))
	for k, v := range m {
		changed[k] = v
	}
	if p.rate {
		changed[p.name] = fmt.Sprintf("%.3fGB", value/1e9)
	} else {
		changed[p.name] = time.Duration(value * float64(time.Second)).String()
	}
	return changed
}

// machine returns the model of a host with a number of ranks.
func (m model) machine(ranks int) (simulate.Model, error) {
	var errs []string
	number := func(name string) float64 {
		v, err := m.get(name)
		if err != nil {
			errs = append(errs, err.Error())
		}
		return v
	}
	duration := func(name string) time.Duration { return time.Duration(number(name) * float64(time.Second)) }
	s := simulate.Model{
		RanksPerHost: ranks, Cores: int(number("cores")), Switch: duration("switch-time"),
		Poll: duration("poll-time"), PollFor: duration("poll-for"), Wake: duration("wake-time"), ReduceRate: number("reduce-rate"),
		Memory: simulate.Path{
			Latency: duration("memory-latency"), Message: duration("memory-message-time"),
			CopyRate: number("memory-copy-rate"), Rate: number("memory-bandwidth"),
		},
	}
	if len(errs) > 0 {
		return s, fmt.Errorf("model: %s", strings.Join(errs, "; "))
	}
	return s, nil
}

// predict returns the predicted seconds of all cells.
func (m model) predict(ctx context.Context, cells []cell) ([]float64, error) {
	predicted, errs := make([]float64, len(cells)), make([]error, len(cells))
	var workers sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				c := cells[i]
				machine, err := m.machine(c.Ranks)
				if err == nil {
					var r simulate.Result
					r, err = simulate.Run(ctx, machine, simulate.Call{Collective: c.Op, Algorithm: c.Algorithm, Ranks: c.Ranks, Bytes: int(c.Bytes), Channels: c.Channels}, nil)
					predicted[i] = r.Time.Seconds()
				}
				errs[i] = err
			}
		})
	}
	for i := range cells {
		next <- i
	}
	close(next)
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return predicted, nil
}

// factor returns the larger of predicted ÷ measured and measured ÷ predicted.
func factor(predicted, measured float64) float64 {
	return max(predicted/measured, measured/predicted)
}

// loss returns the mean error of a model: for each cell the logarithm of the factor, and more above a factor of 2.
func (m model) loss(ctx context.Context, cells []cell) (float64, error) {
	predicted, err := m.predict(ctx, cells)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for i, c := range cells {
		l := math.Log(factor(predicted[i], c.median()))
		sum += l + 3*max(0, l-math.Log(1.8))
	}
	return sum / float64(len(cells)), nil
}

// fit changes one parameter after the other, by factors that become smaller, as long as the loss decreases.
func fit(ctx context.Context, m model, cells []cell, evaluations int, progress io.Writer) (model, error) {
	if len(cells) == 0 {
		return nil, fmt.Errorf("no measurements to fit to")
	}
	best, err := m.loss(ctx, cells)
	if err != nil {
		return nil, err
	}
	list := parameters()
	const enough = 0.002 // a round of changes must decrease the loss by this part
	for step := 0.5; step > 0.02 && evaluations > 0; {
		before := best
		for _, p := range list {
			for _, by := range []float64{1 + step, 1 / (1 + step)} {
				value, err := m.get(p.name)
				if err != nil {
					return nil, err
				}
				changed := m.with(p, value*by)
				l, err := changed.loss(ctx, cells)
				if err != nil {
					return nil, err
				}
				if evaluations--; l < best {
					m, best = changed, l
					break
				}
			}
		}
		fmt.Fprintf(progress, "loss %.4f at step %.2f, %d models left\n", best, step, evaluations)
		if best > before*(1-enough) {
			step /= 2
		}
	}
	return m, nil
}

// printErrors prints the errors of a model: of the cells that it was fitted to, of the others, and of all.
func printErrors(ctx context.Context, out io.Writer, title string, m model, cells []cell, fitted []int, all bool) error {
	predicted, err := m.predict(ctx, cells)
	if err != nil {
		return err
	}
	isFitted := fittedTo(fitted)
	groups := map[string][]float64{}
	for i, c := range cells {
		f := factor(predicted[i], c.median())
		name := "not fitted"
		if isFitted(c) {
			name = "fitted"
		}
		ranks := fmt.Sprintf("%d ranks", c.Ranks)
		for _, g := range []string{name, ranks, "all"} {
			groups[g] = append(groups[g], f)
		}
		if all || f > 2 {
			fmt.Fprintf(out, "%s: %s of %d bytes, %d ranks, %s/%d: predicted %.1f µs, measured %.1f (%.1f to %.1f), factor %.2f\n",
				title, c.Op, c.Bytes, c.Ranks, c.Algorithm, c.Channels, predicted[i]*1e6, c.median()*1e6, c.Micros[0], c.Micros[len(c.Micros)-1], f)
		}
	}
	names := make([]string, 0, len(groups))
	for name := range groups {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(groups[a]), len(groups[b])), strings.Compare(a, b))
	})
	for _, name := range names {
		list := groups[name]
		slices.Sort(list)
		above := 0
		for _, f := range list {
			if f > 2 {
				above++
			}
		}
		n := len(list)
		fmt.Fprintf(out, "%s, %s: %d predictions, median error %.0f %%, worst %.1f×, above 2×: %d\n",
			title, name, n, 100*((list[(n-1)/2]+list[n/2])/2-1), list[n-1], above)
	}
	return nil
}
