package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/nexar-go/nexar/examples/train/digits"
	"github.com/nexar-go/nexar/examples/train/sgd"
)

// options are the values of the flags, the same on all ranks.
type options struct {
	epochs   int
	batch    int
	rate     float64
	seed     uint64
	compress string
	data     string
	local    int
}

// parse parses the flags. For --help it writes the usage to out and returns flag.ErrHelp.
func parse(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("train", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are returned
	flags.IntVar(&o.epochs, "epochs", 30, "number of passes over the images")
	flags.IntVar(&o.batch, "batch", 32, "images of a step, on all ranks together")
	flags.Float64Var(&o.rate, "rate", 0.2, "initial learning rate, which falls to 0")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the weights, the order of the images and the test set")
	flags.StringVar(&o.compress, "compress", sgd.NoCompression, "compression of gradients: none, topk or randomk (1% of the elements), quantize8 or cast16 (8 or 16 bits of each element)")
	flags.StringVar(&o.data, "data", "", "gzipped CSV `file` with 64 pixels from 0 to 16 and a digit in each line, the same on all ranks (default: the built-in images)")
	flags.IntVar(&o.local, "local", 0, "number of ranks in this process, without a cluster")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(out)
			flags.PrintDefaults()
		}
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.epochs < 1:
		return o, fmt.Errorf("--epochs %d: must be at least 1", o.epochs)
	case o.batch < 1:
		return o, fmt.Errorf("--batch %d: must be at least 1", o.batch)
	case !(o.rate > 0):
		return o, fmt.Errorf("--rate %v: must be positive", o.rate)
	case o.local < 0:
		return o, fmt.Errorf("--local %d: must not be negative", o.local)
	}
	if _, err := sgd.CompressorOf(o.compress, 0); err != nil {
		return o, fmt.Errorf("--compress: %w", err)
	}
	return o, nil
}

// sets are the training and test sets.
type sets struct{ train, test *digits.Set }

// load reads the data and splits it.
func (o options) load() (*sets, error) {
	const held = 0.2
	all, err := digits.Load()
	if o.data != "" {
		all, err = read(o.data)
	}
	if err != nil {
		return nil, err
	}
	train, test := all.Split(o.seed, held)
	if train.Len() == 0 || test.Len() == 0 {
		return nil, fmt.Errorf("--data %s: %d images are too few for a training and a test set", o.data, all.Len())
	}
	return &sets{train, test}, nil
}

func read(path string) (*digits.Set, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	set, err := digits.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return set, nil
}
