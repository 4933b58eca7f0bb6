package launch

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// partAfter is the time after which a part of a line is printed: a prompt, or a progress bar, which ends in a
	// carriage return. Until then the printer waits for the end of the line, so that lines stay whole.
	partAfter = 100 * time.Millisecond

	// partMax is the length from which on a part of a line is printed at once, so that a child that never
	// ends its line cannot exhaust the memory.
	partMax = 1 << 20
)

// A printer writes the output of all children. A single goroutine writes all of it. If standard output and standard
// error are the same terminal or file, it also keeps their lines apart.
type printer struct {
	chunks  chan chunk
	broken  chan error // gets the error of the first failed write
	done    sync.WaitGroup
	outlets [2]*outlet
	parts   map[*source]time.Time // sources with a held part of a line, since when
}

// A stream is standard output or standard error.
type stream int

const (
	stdout stream = iota
	stderr
)

// An outlet is a writer, and perhaps its terminal or file, which both streams may share.
type outlet struct {
	io.Writer
	err     error    // of the write that has failed
	current **source // whose unfinished line is the last one; shared by outlets of the same file
}

// A source is one stream of a child.
type source struct {
	to     stream
	prefix func() string // for the beginning of each line

	held     []byte // the beginning of a line, not printed yet
	begun    bool   // the line has a prefix
	returned bool   // after a carriage return, which leaves the cursor at the beginning of the line
	cut      bool   // another source has ended the line
}

// noPrefix is the prefix of a source without one.
func noPrefix() string { return "" }

// A chunk is output of a source. The last one has no text.
type chunk struct {
	from *source
	text []byte
}

func newPrinter(out, err io.Writer) *printer {
	a, b := &outlet{Writer: out, current: new(*source)}, &outlet{Writer: err, current: new(*source)}
	if sameFile(out, err) {
		b.current = a.current
	}
	p := &printer{chunks: make(chan chunk), broken: make(chan error, 1), outlets: [2]*outlet{a, b}, parts: make(map[*source]time.Time)}
	p.done.Go(p.run)
	return p
}

// sameFile reports whether two writers are the same terminal, pipe or file.
func sameFile(a, b io.Writer) bool {
	f, ok := a.(*os.File)
	g, both := b.(*os.File)
	if !ok || !both {
		return false
	}
	x, err := f.Stat()
	y, other := g.Stat()
	return err == nil && other == nil && os.SameFile(x, y)
}

// print prints the next output of a source.
func (p *printer) print(from *source, text []byte) { p.chunks <- chunk{from, text} }

// copy prints what it reads from r as output of a source. A read error counts as the end of r.
func (p *printer) copy(from *source, r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			p.print(from, bytes.Clone(buf[:n]))
		}
		if err != nil {
			p.print(from, nil)
			return
		}
	}
}

// close waits until all output is written. print must not be called any more.
func (p *printer) close() {
	close(p.chunks)
	p.done.Wait()
}

func (p *printer) run() {
	told := false
	var tick <-chan time.Time
	for {
		if tick == nil && len(p.parts) > 0 {
			tick = time.After(partAfter / 2)
		}
		select {
		case c, ok := <-p.chunks:
			if !ok {
				return
			}
			p.take(c)
		case <-tick:
			tick = nil
			for s, since := range p.parts {
				if time.Since(since) >= partAfter {
					p.write(s, len(s.held))
				}
			}
		}
		if err := cmp.Or(p.outlets[stdout].err, p.outlets[stderr].err); err != nil && !told {
			told = true
			p.broken <- err
		}
	}
}

// take prints the whole lines of a chunk, and holds the rest.
func (p *printer) take(c chunk) {
	s := c.from
	s.held = append(s.held, c.text...)
	n := bytes.LastIndexByte(s.held, '\n') + 1
	if len(s.held)-n > partMax || c.text == nil {
		n = len(s.held)
	}
	p.write(s, n)
	if c.text == nil && *p.outlets[s.to].current == s {
		s.held = append(s.held, '\n') // A last line without an end gets one.
		p.write(s, 1)
	}
}

// write writes the first n bytes that are held of a source. After a failed write an outlet drops all text instead of
// blocking the children.
func (p *printer) write(s *source, n int) {
	if n > 0 {
		o := p.outlets[s.to]
		text := o.lines(s, s.held[:n])
		s.held = append(s.held[:0], s.held[n:]...)
		delete(p.parts, s)
		if o.err == nil {
			_, o.err = o.Write(text)
		}
	}
	if _, ok := p.parts[s]; !ok && len(s.held) > 0 {
		p.parts[s] = time.Now()
	}
}

// lines returns text with the prefix before each line, and after each carriage return within a line, where the text would
// overwrite it. It ends the unfinished line of another source.
func (o *outlet) lines(s *source, text []byte) []byte {
	prefix := s.prefix()
	out := make([]byte, 0, len(text)+len(prefix)*(1+bytes.Count(text, []byte{'\n'})))
	if last := *o.current; last != s {
		if last != nil {
			out = append(out, '\n')
			last.begun, last.returned, last.cut = false, false, true
		}
		*o.current = nil
	}
	for line := range bytes.Lines(text) {
		line, whole := bytes.CutSuffix(line, []byte{'\n'})
		for part := range bytes.SplitAfterSeq(line, []byte{'\r'}) {
			if len(part) > 0 && part[0] != '\r' && (!s.begun || s.returned) {
				out = append(out, prefix...)
				s.begun, s.cut = true, false
			}
			out = append(out, part...)
			s.returned = bytes.HasSuffix(part, []byte{'\r'}) || s.returned && len(part) == 0
		}
		if !whole {
			continue
		}
		if !s.begun && !s.cut {
			out = append(out, prefix...)
		}
		if !s.cut {
			out = append(out, '\n')
		}
		s.begun, s.returned, s.cut = false, false, false
	}
	if *o.current = nil; s.begun {
		*o.current = s
	}
	return out
}
