package testhost

import (
	"bytes"
	"sync"
)

// A LogBuffer keeps everything that is written to it, such as the output of a process.
// Several goroutines may use it at the same time.
type LogBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p. It never fails.
func (b *LogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns everything written so far.
func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Tail returns the last n bytes.
func (b *LogBuffer) Tail(n int) string {
	s := b.String()
	return s[max(0, len(s)-n):]
}
