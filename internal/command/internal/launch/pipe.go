package launch

import (
	"io"
	"os"
	"sync"
	"time"
)

// Limits on reading a pipe after its child has ended. The output of the child is always
// read completely. A process that has escaped from the child's group may hold the pipe open
// and even write to it: reading ends after drainMax without data or after drainBytesMax.
const (
	drainMax      = time.Second
	drainBytesMax = 1 << 20
)

// A pipe is the read end of the output of a child.
type pipe struct {
	file *os.File

	mu    sync.Mutex
	ended bool
	rest  int // bytes that may still be read after the end
}

// end is called when the child has ended.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended, p.rest = true, drainBytesMax
	p.limit()
}

// limit bounds the current or next read by drainMax. On systems without deadlines for
// pipes the end of the child's job closes them.
func (p *pipe) limit() { _ = p.file.SetReadDeadline(time.Now().Add(drainMax)) }

func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	if p.ended {
		if p.rest <= 0 {
			p.mu.Unlock()
			return 0, io.EOF
		}
		p.limit()
	}
	p.mu.Unlock()

	n, err := p.file.Read(b)

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		p.rest -= n
	}
	return n, err
}
