package launch

import (
	"bytes"
	"strings"
	"sync"
)

// lastWords keeps the last line of the standard error of a child, which usually says why it exits. Of the report of
// a panic in Go it is the first line.
type lastWords struct {
	mu    sync.Mutex
	line  []byte // the beginning of an unfinished line
	text  string
	panic bool
}

// wordsMax is the length of the longest text that is kept.
const wordsMax = 300

func (w *lastWords) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for part := range bytes.Lines(b) {
		w.line = append(w.line, part[:min(len(part), wordsMax-len(w.line))]...)
		if part[len(part)-1] == '\n' {
			w.end()
		}
	}
	return len(b), nil
}

// end takes the line as the last one.
func (w *lastWords) end() {
	text := strings.TrimSpace(strings.ToValidUTF8(string(w.line), ""))
	w.line = w.line[:0]
	// go run adds the status of its program.
	if text != "" && !w.panic && !strings.HasPrefix(text, "exit status ") {
		w.text, w.panic = text, strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")
	}
}

func (w *lastWords) get() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
	return w.text
}
