package launch

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestCopyLines(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"one line", "a\n", "> a\n"},
		{"last line without end", "a\nb", "> a\n> b\n"},
		{"empty lines", "\n\n", "> \n> \n"},
		{"carriage returns stay", "a\r\nb\rc\n", "> a\r\n> b\rc\n"},
	}
	for _, test := range tests {
		readers := map[string]io.Reader{
			"at once":      strings.NewReader(test.in),
			"data and EOF": iotest.DataErrReader(strings.NewReader(test.in)),
			"bytewise":     iotest.OneByteReader(strings.NewReader(test.in)),
		}
		for how, r := range readers {
			var got strings.Builder
			copyLines(r, func() string { return "> " }, func(text []byte) {
				if text[len(text)-1] != '\n' {
					t.Errorf("%s, %s: handed out %.20q, which is not whole lines", test.name, how, text)
				}
				got.Write(text)
			})
			if got.String() != test.want {
				t.Errorf("%s, %s: got %q, want %q", test.name, how, got.String(), test.want)
			}
		}
	}
}

func TestLongLinesAreBroken(t *testing.T) {
	in := strings.Repeat("y", 3*lineMax)
	count, longest := 0, 0
	copyLines(strings.NewReader(in), func() string { return "" }, func(text []byte) {
		count += strings.Count(string(text), "y")
		longest = max(longest, len(text))
	})
	if count != len(in) {
		t.Errorf("got %d of %d characters", count, len(in))
	}
	if longest > lineMax+64<<10 {
		t.Errorf("a line of %d bytes was kept, want at most about %d", longest, lineMax)
	}
}
