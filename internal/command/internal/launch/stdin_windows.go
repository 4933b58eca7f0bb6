package launch

import "os"

// A feeder provides the standard input of a child.
type feeder struct{ out *os.File }

func feed(stdin *os.File) (*feeder, error) { return &feeder{out: stdin}, nil }

func (*feeder) started() {}
func (*feeder) stop()    {}
