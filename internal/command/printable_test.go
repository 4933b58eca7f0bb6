package command

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// Errors about flags, arguments and variables contain no control characters.
func TestErrorsArePrintable(t *testing.T) {
	const hostile = "\x1b[31mred\xff\u009b1m"
	for _, test := range []struct {
		args []string
		env  string // name=value
	}{
		{[]string{hostile}, ""},
		{[]string{"--" + hostile}, ""},
		{[]string{"run", "-" + hostile}, ""},
		{[]string{"run", "-n", hostile, "--", "true"}, ""},
		{[]string{"run", "--", hostile}, ""},
		{[]string{"run", "--", "./" + hostile}, ""},
		{[]string{"run", "--env", hostile, "--", "true"}, ""},
		{[]string{"run", "--grace", hostile, "--", "true"}, ""},
		{[]string{"run", "--seed", hostile, "--", "true"}, ""},
		{[]string{"run", "--seed", "127.0.0.1:1", "-n", "2", "--", "true"}, "NEXAR_LISTEN=\x1b\xff:7"},
		{[]string{"run", "--peers", hostile, "--world", "1", "--state-dir", "x", "--", "true"}, ""},
		{[]string{"seed", "--world", "1", "--listen", hostile}, ""},
		{[]string{"seed", "--world", "1", "--log-level", hostile}, ""},
		{[]string{"seed", "--world", "1", "--peers", "127.0.0.1:1", "--state-dir", "x", "--peer-token-file", hostile}, ""},
		{[]string{"seed", "--world", "1", "--ca-cert", hostile, "--ca-key", hostile}, ""},
		{[]string{"status", "--seed", hostile}, ""},
		{[]string{"status"}, "NEXAR_SEEDS=" + hostile},
		{[]string{"bench", "--op", hostile}, ""},
		{[]string{"bench", "--min", hostile}, ""},
		{[]string{"bench", "--transport", hostile}, ""},
		{[]string{"bench", "--transport", "mem"}, "NEXAR_SEEDS=" + hostile},
		{[]string{"bench", "--transport", "mem", "--json", "/nowhere/" + hostile}, ""},
		{[]string{"doctor", hostile}, ""},
	} {
		t.Run(strings.Join(test.args, " ")+test.env, func(t *testing.T) {
			t.Setenv("NEXAR_CLUSTER_TOKEN", "a-token-of-this-test-0123456789abcdef")
			t.Setenv("NEXAR_"+hostile, "misspelt")
			if name, value, ok := strings.Cut(test.env, "="); ok {
				t.Setenv(name, value)
			}
			var out, errs bytes.Buffer
			if status := execute(Hardware{}, test.args, nil, &out, &errs); status == statusOK {
				t.Errorf("exit status 0, want a failure; standard error: %q", errs.String())
			}
			for _, text := range []string{out.String(), errs.String()} {
				if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
					t.Errorf("%q is not printable", text)
				}
			}
		})
	}
}
