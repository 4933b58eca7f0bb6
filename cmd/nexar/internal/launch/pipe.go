package launch

import (
	"io"
	"os"
	"sync"
	"time"
)

// What a pipe still gives when its child has ended: all that the child has
// left in it, however slowly that is read. A process that has escaped from the
// child's group may hold the pipe open and even write to it; after drainMax of
// silence, or drainBytesMax, it is not listened to.
const (
	drainMax      = time.Second
	drainBytesMax = 1 << 20
)

// A pipe is the reading end of the output of a child.
type pipe struct {
	file *os.File

	mu    sync.Mutex
	ended bool
	rest  int // bytes that may be read after the end
}

// end says that the child has ended.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended, p.rest = true, drainBytesMax
	p.limit()
}

// limit gives the read that runs, or comes, drainMax. Where pipes know no
// deadlines the end of the child's job closes them.
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
