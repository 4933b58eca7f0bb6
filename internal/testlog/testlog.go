// Package testlog keeps the output of what a test runs.
package testlog

import (
	"bytes"
	"sync"
)

// A Buffer keeps everything that is written to it, such as the output of a process.
// Several goroutines may use it at the same time.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns everything written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Tail returns the last n bytes.
func (b *Buffer) Tail(n int) string {
	s := b.String()
	return s[max(0, len(s)-n):]
}
