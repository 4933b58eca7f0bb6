package launch

import (
	"bytes"
	"io"
	"sync"
)

// lineMax is the length of the longest line that is kept whole. A longer line is
// split, so that a child that never ends its line cannot exhaust the memory.
const lineMax = 1 << 20

// A printer writes the output of all children. A single goroutine writes whole
// lines, so that lines stay whole even when standard output and standard error are the
// same terminal.
type printer struct {
	lines   chan lines
	broken  chan struct{} // closed after a failed write
	done    sync.WaitGroup
	writers [2]io.Writer
}

// A stream is standard output or standard error.
type stream int

const (
	stdout stream = iota
	stderr
)

type lines struct {
	to   stream
	text []byte
}

func newPrinter(out, err io.Writer) *printer {
	p := &printer{lines: make(chan lines), broken: make(chan struct{}), writers: [2]io.Writer{out, err}}
	p.done.Go(p.run)
	return p
}

// run writes lines. After a failed write it drops further lines for that stream
// instead of blocking the children.
func (p *printer) run() {
	var failed [len(p.writers)]bool
	breaks := sync.OnceFunc(func() { close(p.broken) })
	for l := range p.lines {
		if failed[l.to] {
			continue
		}
		if _, err := p.writers[l.to].Write(l.text); err != nil {
			failed[l.to] = true
			breaks()
		}
	}
}

// print writes whole lines. It does not retain text.
func (p *printer) print(to stream, text []byte) {
	p.lines <- lines{to, text}
}

// close waits until all lines are written. print must not be called any more.
func (p *printer) close() {
	close(p.lines)
	p.done.Wait()
}

// copyLines reads r to its end and passes batches of whole lines to emit, each line with
// the prefix that is current when the batch was read. It adds a newline to an incomplete last line. A read error counts as
// the end of r.
func copyLines(r io.Reader, prefix func() string, emit func([]byte)) {
	var pending []byte // the beginning of a line
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		pending = append(pending, buf[:n]...)
		whole := bytes.LastIndexByte(pending, '\n') + 1
		if whole > 0 {
			emit(prefixed(prefix(), pending[:whole]))
			pending = append(pending[:0], pending[whole:]...)
		}
		if len(pending) > lineMax || err != nil && len(pending) > 0 {
			emit(prefixed(prefix(), append(pending, '\n')))
			pending = pending[:0]
		}
		if err != nil {
			return
		}
	}
}

// prefixed returns a copy of text, which consists of whole lines, with the prefix before
// each line.
func prefixed(prefix string, text []byte) []byte {
	out := make([]byte, 0, len(text)+len(prefix)*bytes.Count(text, []byte{'\n'}))
	for line := range bytes.Lines(text) {
		out = append(out, prefix...)
		out = append(out, line...)
	}
	return out
}
