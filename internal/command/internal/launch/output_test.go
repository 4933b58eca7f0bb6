package launch

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// prefixed is a source whose lines begin with a prefix.
func prefixed(prefix string) *source { return &source{prefix: func() string { return prefix }} }

func TestLines(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"one line", "a\n", "> a\n"},
		{"last line without end", "a\nb", "> a\n> b\n"},
		{"empty lines", "\n\n", "> \n> \n"},
		{"line ends of Windows", "a\r\nb\r\n", "> a\r\n> b\r\n"},
		{"carriage returns before", "\ra\rb\nc", "\r> a\r> b\n> c\n"},
		{"carriage returns after", "a\rb\r", "> a\r> b\r\n"},
	}
	for _, test := range tests {
		readers := map[string]io.Reader{
			"at once":      strings.NewReader(test.in),
			"data and EOF": iotest.DataErrReader(strings.NewReader(test.in)),
			"bytewise":     iotest.OneByteReader(strings.NewReader(test.in)),
		}
		for how, r := range readers {
			var got strings.Builder
			p := newPrinter(&got, io.Discard)
			p.copy(prefixed("> "), r)
			p.close()
			if got.String() != test.want {
				t.Errorf("%s, %s: got %q, want %q", test.name, how, got.String(), test.want)
			}
		}
	}
}

func TestLongLineIsPrinted(t *testing.T) {
	var got writes
	p := newPrinter(&got, io.Discard)
	p.copy(prefixed("> "), strings.NewReader(strings.Repeat("y", 3*partMax)))
	p.close()
	if want := "> " + strings.Repeat("y", 3*partMax) + "\n"; strings.Join(got, "") != want {
		t.Errorf("got %d bytes, want %d", len(strings.Join(got, "")), len(want))
	}
	for _, text := range got {
		if len(text) > partMax+64<<10 {
			t.Errorf("%d bytes were held, want at most about %d", len(text), partMax)
		}
	}
}

// writes are the texts that were written.
type writes []string

func (w *writes) Write(b []byte) (int, error) {
	*w = append(*w, string(b))
	return len(b), nil
}

// TestPartsOfLines: prompts and progress bars appear within 0.2 s, and the lines of other sources do not mix with them.
func TestPartsOfLines(t *testing.T) {
	type step struct {
		source int
		text   string
		after  time.Duration // the pause after it
	}
	const moment, soon = time.Millisecond, 200*time.Millisecond - 1
	for name, test := range map[string]struct {
		steps []step
		want  []string // what is written until the end of each pause
	}{
		"prompt":           {[]step{{0, "name? ", soon}, {0, "thanks\n", 0}}, []string{"0 name? ", "thanks\n"}},
		"in pieces":        {[]step{{0, "a", moment}, {1, "b\n", moment}, {0, "c\n", 0}}, []string{"", "1 b\n", "0 ac\n"}},
		"bar":              {[]step{{0, "\r1 of 2", soon}, {0, "\r2 of 2", soon}, {0, "\n", 0}}, []string{"\r0 1 of 2", "\r0 2 of 2", "\n"}},
		"bar, returned":    {[]step{{0, "1 of 2\r", soon}, {0, "2 of 2\r", soon}, {0, "\n", 0}}, []string{"0 1 of 2\r", "0 2 of 2\r", "\n"}},
		"two bars":         {[]step{{0, "\r1 of 2", soon}, {1, "\r1 of 2", soon}, {0, "\r2 of 2", soon}}, []string{"\r0 1 of 2", "\n\r1 1 of 2", "\n\r0 2 of 2"}},
		"other line":       {[]step{{0, "a", soon}, {1, "b\n", soon}, {0, "c\n", 0}}, []string{"0 a", "\n1 b\n", "0 c\n"}},
		"end after other":  {[]step{{0, "a", soon}, {1, "b\n", soon}, {0, "\nc\n", 0}}, []string{"0 a", "\n1 b\n", "0 c\n"}},
		"empty line after": {[]step{{0, "a", soon}, {1, "b\n", soon}, {0, "\n\n", 0}}, []string{"0 a", "\n1 b\n", "0 \n"}},
		"other part":       {[]step{{0, "a", soon}, {1, "b", soon}, {0, "c", soon}}, []string{"0 a", "\n1 b", "\n0 c"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got bytes.Buffer
				p := newPrinter(&got, io.Discard)
				defer p.close()
				sources := []*source{prefixed("0 "), prefixed("1 ")}
				for i, s := range test.steps {
					p.print(sources[s.source], []byte(s.text))
					time.Sleep(s.after)
					synctest.Wait()
					if got.String() != test.want[i] {
						t.Errorf("%v after %q of %d: got %q, want %q", s.after, s.text, s.source, got.String(), test.want[i])
					}
					got.Reset()
				}
			})
		})
	}
}

// TestStreamsOfOneFile: a line of standard error does not continue one of standard output in the same file, and does not end it in
// another file.
func TestStreamsOfOneFile(t *testing.T) {
	for name, want := range map[string]string{"same": "0 a\n1 b\n0 c\n", "other": "0 ac\n"} {
		path := filepath.Join(t.TempDir(), "out")
		open := func(path string) *os.File {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			return f
		}
		p := newPrinter(open(path), open(map[string]string{"same": path, "other": path + ".err"}[name]))
		first, second := prefixed("0 "), prefixed("1 ")
		second.to = stderr
		p.print(first, bytes.Repeat([]byte{'a'}, partMax+1))
		p.print(second, []byte("b\n"))
		p.print(first, []byte("c\n"))
		p.close()
		b, err := os.ReadFile(path)
		if got := strings.ReplaceAll(string(b), strings.Repeat("a", partMax+1), "a"); err != nil || got != want {
			t.Errorf("%s file: got %.40q (%v), want %q", name, got, err, want)
		}
	}
}
