package launch

import (
	"strings"
	"testing"
)

func TestList(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "",
		"rank 3":                         "rank 3",
		"rank 3,rank 1":                  "ranks 1, 3",
		"rank 0,rank 1,rank 2,rank 4":    "ranks 0 to 2, 4",
		"rank 0,process 1,rank 5,rank 6": "ranks 0, 5, 6, process 1",
		"process 7,process 8,process 9":  "processes 7 to 9",
		"rank 0,the leader":              "rank 0, the leader",
	} {
		if got := list(strings.FieldsFunc(in, func(r rune) bool { return r == ',' })); got != want {
			t.Errorf("list of %s: %q, want %q", in, got, want)
		}
	}
}

func TestDescribeEnds(t *testing.T) {
	killed := &Failure{Name: "rank 4", Signal: 15, SignalName: "terminated"}
	exited := func(name string, status int) *Failure { return &Failure{Name: name, Status: status, LastWords: "help"} }
	for _, test := range []struct {
		want string
		in   []*Failure
	}{
		{"rank 4 was killed by signal 15 (terminated)", []*Failure{killed}},
		{"ranks 0, 1 exited with status 1; rank 4 was killed by signal 15 (terminated)", []*Failure{exited("rank 0", 1), killed, exited("rank 1", 1)}},
		{"rank 0 exited with status 1; ranks 2 to 4 exited with status 2", []*Failure{exited("rank 0", 1), exited("rank 2", 2), exited("rank 4", 2), exited("rank 3", 2)}},
		{"ranks 4, 5 were killed by signal 15 (terminated)", []*Failure{killed, {Name: "rank 5", Signal: 15, SignalName: "terminated"}}},
	} {
		if got := describeEnds(test.in); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestLastWords(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "",
		"one\ntwo\n":                     "two",
		"one\ntwo":                       "two",
		"one\n\n \n":                     "one",
		"panic: why\n\ngoroutine 1\n":    "panic: why",
		"fatal error: all\nmain.main()":  "fatal error: all",
		"failed\nexit status 3\n":        "failed",
		strings.Repeat("x", 1000) + "\n": strings.Repeat("x", wordsMax),
	} {
		var whole, bytewise lastWords
		_, _ = whole.Write([]byte(in))
		for i := range len(in) {
			_, _ = bytewise.Write([]byte{in[i]})
		}
		if a, b := whole.get(), bytewise.get(); a != want || b != want {
			t.Errorf("%.30q: %.40q, bytewise %.40q, want %.40q", in, a, b, want)
		}
	}
}
