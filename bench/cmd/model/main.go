// Command model compares predictions of package simulate with measurements of ranks that share the processors of this
// host, and fits the numbers of the model to them. "make model" calls it.
//
//	model                     print the errors of the models in docs/results
//	model -measure            measure once more, and add a round to the measurements
//	model -fit                fit the models to the measurements, and write them
//
// The measurements are in model/loopback-runs.jsonl.gz: lines of "nexar bench --json" with the number of the round. Nothing
// else should run on the machine while it measures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "model: %v\n", err)
		os.Exit(1)
	}
}

// flags are the flags of the command.
type flags struct {
	folder       string
	measure, fit bool
	nexar        string
	ranks        []int
	fitted       []int
	evaluations  int
	all          bool
}

func parse(args []string, stderr io.Writer) (f flags, err error) {
	set := flag.NewFlagSet("model", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&f.folder, "folder", filepath.Join("..", "docs", "results"), "`folder` of the measurements and the models")
	set.BoolVar(&f.measure, "measure", false, "measure once more, about a minute")
	set.BoolVar(&f.fit, "fit", false, "fit the models, and write them")
	set.StringVar(&f.nexar, "nexar", filepath.Join("..", "nexar"), "`program` to measure, from \"make build\"")
	ranks := set.String("ranks", "128,64,32,16,8,4,2", "`numbers` of ranks to measure")
	fitted := set.String("fit-ranks", "2,4,8,16,32,64,128", "`numbers` of ranks to which the models are fitted")
	set.IntVar(&f.evaluations, "evaluations", 400, "`number` of models that -fit tries for each file")
	set.BoolVar(&f.all, "all", false, "print all predictions")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("arguments %q: model takes only flags", set.Args())
	}
	if f.ranks, err = numbers("-ranks", *ranks); err != nil {
		return f, err
	}
	f.fitted, err = numbers("-fit-ranks", *fitted)
	return f, err
}

// numbers parses a list of numbers of ranks.
func numbers(name, text string) (list []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 2 || n > 128 {
			return nil, fmt.Errorf("%s %q: want numbers of ranks from 2 to 128, separated by commas", name, text)
		}
		list = append(list, n)
	}
	return list, nil
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	f, err := parse(args, progress)
	if err != nil {
		return err
	}
	data := filepath.Join(f.folder, "model", "loopback-runs.jsonl.gz")
	if f.measure {
		if err := measure(ctx, f.nexar, f.ranks, data, progress); err != nil {
			return err
		}
	}
	cells, err := read(data)
	if err != nil {
		return err
	}
	for _, kind := range []struct {
		file, title string
		encrypted   bool
	}{{"loopback-tcp.json", "in the clear", false}, {"loopback-tls.json", "TLS", true}} {
		own := selected(cells, func(c cell) bool { return c.Encrypted == kind.encrypted })
		if len(own) == 0 {
			continue
		}
		file := filepath.Join(f.folder, kind.file)
		m, err := readModel(file)
		if err != nil {
			return err
		}
		if f.fit {
			if m, err = fit(ctx, m, selected(own, fittedTo(f.fitted)), f.evaluations, progress); err != nil {
				return err
			}
			if err := m.write(file); err != nil {
				return err
			}
		}
		if err := printErrors(ctx, out, kind.title, m, own, f.fitted, f.all); err != nil {
			return err
		}
	}
	return nil
}
