//race:none it starts no goroutine

package match

import (
	"slices"
	"strings"
	"testing"
)

// A call is one call of a Matcher. Receives and messages are named by text.
type call struct {
	do     string // "post", "come" (Take, then Keep), "peek", "remove"
	source int
	tag    int64
	name   string
	want   string // the counterpart; "" without one
}

func TestMatcher(t *testing.T) {
	tests := []struct {
		name  string
		calls []call
	}{
		{"a receive waits for its message", []call{
			{"post", 1, 7, "r", ""}, {"come", 1, 7, "m", "r"},
		}},
		{"a message waits for its receive", []call{
			{"come", 1, 7, "m", ""}, {"post", 1, 7, "r", "m"},
		}},
		{"source and tag both count", []call{
			{"come", 1, 7, "m", ""}, {"post", 1, 8, "r1", ""}, {"post", 2, 7, "r2", ""}, {"post", 1, 7, "r3", "m"},
		}},
		{"messages of one source and tag keep their order", []call{
			{"come", 1, 7, "m1", ""}, {"come", 1, 7, "m2", ""}, {"come", 1, 7, "m3", ""},
			{"post", 1, 7, "r1", "m1"}, {"post", 1, 7, "r2", "m2"}, {"post", 1, 7, "r3", "m3"},
		}},
		{"receives of one source and tag keep their order", []call{
			{"post", 1, 7, "r1", ""}, {"post", 1, 7, "r2", ""}, {"come", 1, 7, "m1", "r1"}, {"come", 1, 7, "m2", "r2"},
		}},
		{"any source takes the message that came first", []call{
			{"come", 2, 7, "m1", ""}, {"come", 1, 7, "m2", ""}, {"come", 2, 7, "m3", ""},
			{"post", Any, 7, "r1", "m1"}, {"post", Any, 7, "r2", "m2"}, {"post", Any, 7, "r3", "m3"},
		}},
		{"any tag takes the message that came first", []call{
			{"come", 1, 9, "m1", ""}, {"come", 2, 8, "m2", ""}, {"come", 1, 8, "m3", ""},
			{"post", 1, Any, "r1", "m1"}, {"post", 1, Any, "r2", "m3"}, {"post", Any, Any, "r3", "m2"},
		}},
		{"a wild receive that was posted first wins", []call{
			{"post", Any, 7, "wild", ""}, {"post", 1, 7, "exact", ""}, {"come", 1, 7, "m1", "wild"}, {"come", 1, 7, "m2", "exact"},
		}},
		{"an exact receive that was posted first wins", []call{
			{"post", 1, 7, "exact", ""}, {"post", Any, Any, "wild", ""}, {"come", 1, 7, "m1", "exact"}, {"come", 1, 7, "m2", "wild"},
		}},
		{"a wild receive that does not fit lets others pass", []call{
			{"post", 2, Any, "wild", ""}, {"post", 1, 7, "exact", ""}, {"come", 1, 7, "m1", "exact"}, {"come", 2, 9, "m2", "wild"},
		}},
		{"peek leaves the message", []call{
			{"peek", 1, 7, "", ""}, {"come", 1, 7, "m1", ""}, {"come", 1, 7, "m2", ""},
			{"peek", 1, 7, "", "m1"}, {"peek", Any, Any, "", "m1"}, {"post", 1, 7, "r", "m1"}, {"peek", Any, 7, "", "m2"},
		}},
		{"a removed receive takes nothing", []call{
			{"post", 1, 7, "r1", ""}, {"post", 1, 7, "r2", ""}, {"remove", 1, 7, "r1", "r1"}, {"remove", 1, 7, "r1", ""},
			{"come", 1, 7, "m", "r2"}, {"remove", 1, 7, "r2", ""},
		}},
		{"a removed wild receive takes nothing", []call{
			{"post", Any, 7, "r1", ""}, {"post", 1, Any, "r2", ""}, {"remove", Any, 7, "r1", "r1"}, {"remove", Any, 7, "r1", ""},
			{"come", 1, 7, "m", "r2"},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var m Matcher[string, string]
			for i, c := range test.calls {
				if got := c.make(&m); got != c.want {
					t.Fatalf("call %d, %s(%d, %d, %q): got %q, want %q", i, c.do, c.source, c.tag, c.name, got, c.want)
				}
			}
		})
	}
}

func (c call) make(m *Matcher[string, string]) (got string) {
	switch c.do {
	case "post":
		got, _ = m.Post(c.source, c.tag, c.name)
	case "peek":
		got, _ = m.Peek(c.source, c.tag)
	case "come":
		r, ok := m.Take(c.source, c.tag)
		if !ok {
			m.Keep(c.source, c.tag, c.name)
		}
		got = r
	case "remove":
		if m.Remove(c.source, c.tag, c.name) {
			got = c.name
		}
	default:
		panic("no such call: " + c.do)
	}
	return got
}

func TestQueued(t *testing.T) {
	var m Matcher[string, string]
	want := func(n int) {
		t.Helper()
		if got := m.Queued(); got != n {
			t.Errorf("%d messages wait, want %d", got, n)
		}
	}
	want(0)
	m.Keep(1, 7, "m1")
	m.Keep(1, 7, "m2")
	m.Keep(2, 7, "m3")
	want(3)
	m.Peek(1, 7)
	want(3)
	m.Post(Any, 7, "r1")
	want(2)
	m.Post(9, 9, "r2")
	want(2)
	m.ClearMessages()
	want(0)
}

func TestEachReceive(t *testing.T) {
	var m Matcher[string, string]
	m.Post(1, 7, "a")
	m.Post(1, 7, "b")
	m.Post(Any, 8, "c")
	m.Post(2, 9, "gone")
	m.Take(2, 9)
	var got []string
	m.EachReceive(func(r string) { got = append(got, r) })
	slices.Sort(got)
	if want := []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestClearReceives(t *testing.T) {
	post := func() *Matcher[string, string] {
		m := new(Matcher[string, string])
		m.Post(1, 7, "one seven")
		m.Post(1, Any, "one any")
		m.Post(2, 7, "two seven")
		m.Post(Any, 7, "any seven")
		m.Keep(3, 3, "message")
		return m
	}
	tests := []struct {
		name string
		is   func(source int) bool
		want string
		left []int // sources of messages with tag 7 that find a receive, one after the other
	}{
		{"one source", func(s int) bool { return s == 1 }, "one any, one seven", []int{1, 2}}, // "any seven" is for 1
		{"any source", func(s int) bool { return s == Any }, "any seven", []int{1, 2}},
		{"all", func(int) bool { return true }, "any seven, one any, one seven, two seven", nil},
		{"none", func(int) bool { return false }, "", []int{1, 2, 3}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := post()
			got := m.ClearReceives(test.is)
			slices.Sort(got)
			if strings.Join(got, ", ") != test.want {
				t.Errorf("cleared %q, want %s", got, test.want)
			}
			for _, source := range []int{1, 2, 3} {
				_, ok := m.Take(source, 7)
				if want := slices.Contains(test.left, source); ok != want {
					t.Errorf("a message from %d finds a receive: %v, want %v", source, ok, want)
				}
			}
			if m.Queued() != 1 {
				t.Errorf("%d messages wait, want the one that did", m.Queued())
			}
		})
	}
}

func TestClearMessages(t *testing.T) {
	var m Matcher[string, string]
	m.Post(9, 9, "r")
	for _, name := range []string{"m1", "m2", "m3"} {
		m.Keep(1, int64(len(name)), name)
	}
	got := m.ClearMessages()
	slices.Sort(got)
	if !slices.Equal(got, []string{"m1", "m2", "m3"}) {
		t.Errorf("cleared %q", got)
	}
	if msg, ok := m.Peek(Any, Any); ok {
		t.Errorf("%q still waits", msg)
	}
	if r, ok := m.Take(9, 9); !ok || r != "r" {
		t.Errorf("the receive is %q, %v; it must still wait", r, ok)
	}
}

func BenchmarkEarlyMessage(b *testing.B) {
	var m Matcher[int, int]
	b.ReportAllocs()
	for b.Loop() {
		m.Keep(1, 7, 1)
		m.Post(1, 7, 1)
	}
}

func BenchmarkEarlyReceive(b *testing.B) {
	var m Matcher[int, int]
	b.ReportAllocs()
	for b.Loop() {
		m.Post(1, 7, 1)
		m.Take(1, 7)
	}
}

// The other 1,000 tags cost nothing for a receive with a tag, and a walk over them for a
// receive with AnyTag.
func BenchmarkAmongThousand(b *testing.B) {
	for name, tag := range map[string]int64{"exact": 0, "wild": Any} {
		b.Run(name, func(b *testing.B) {
			var m Matcher[int, int]
			for tag := range int64(1000) {
				m.Keep(1, tag, 1)
			}
			b.ReportAllocs()
			for b.Loop() {
				m.Keep(2, 0, 1)
				m.Post(2, tag, 1)
			}
		})
	}
}
