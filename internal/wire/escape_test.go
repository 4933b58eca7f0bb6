package wire

import "testing"

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		"rank 2 failed: größer 世界":   "rank 2 failed: größer 世界",
		"\x1b[31mred\x1b[0m":         `\x1b[31mred\x1b[0m`,
		"two\nlines\r\t":             `two\nlines\r\t`,
		"bad \xff\xc3 utf-8 \u009b1": `bad \xff\xc3 utf-8 \u009b1`,
		"\ufffd \u202e \u00a0":       `\ufffd \u202e \u00a0`,
		`a "quoted" \ 'text'`:        `a "quoted" \ 'text'`,
		"\x00\x7f":                   `\x00\x7f`,
	} {
		got := Escape(text)
		if got != want {
			t.Errorf("Escape(%q) = %s, want %s", text, got, want)
		}
		if !printable(got) {
			t.Errorf("Escape(%q) = %q, which is not printable", text, got)
		}
	}
}
