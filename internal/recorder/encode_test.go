package recorder

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// The length of an encoded snapshot is bounded, and running operations are dropped
// last.
func TestEncode(t *testing.T) {
	var many []trace.Operation
	for i := range Length {
		o := call(i, strings.Repeat("\x01\"", functionMax/2))
		o.Start, o.Plan, o.Purpose = at(i), strings.Repeat("p", nameMax), strings.Repeat("u", nameMax)
		if i%16 == 0 {
			waiting := make([]int, 1000)
			for k := range waiting {
				waiting[k] = 1_000_000 + k
			}
			SetWaiting(&o, waiting)
		} else {
			o.Outcome = trace.OK
		}
		many = append(many, o)
	}
	b := Encode(snapshot(many...), wire.Full)
	if len(b) > EncodedMax {
		t.Fatalf("%d bytes, at most %d are allowed", len(b), EncodedMax)
	}
	s, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := range s.Operations {
		if s.Operations[i].Running() {
			n++
		}
	}
	if n != Length/16 || len(s.Operations) < n {
		t.Errorf("%d of %d operations are running, want all %d", n, len(s.Operations), Length/16)
	}

	few := snapshot(ended(reduction(6, 0), trace.OK), late(reduction(7, 1), 2))
	if s, err := Decode(Encode(few, wire.Full)); err != nil || !reflect.DeepEqual(s, few) {
		t.Errorf("read %+v, %v; want %+v", s, err, few)
	}
}

// A brief snapshot keeps the running operations, and the links to the ranks that they wait for.
func TestEncodeBrief(t *testing.T) {
	var many []trace.Operation
	for i := range uint64(Length) {
		many = append(many, ended(reduction(i, 0), trace.OK))
	}
	full := snapshot(append(many, late(reduction(Length, 1), 90, 91))...)
	for r := range 100 {
		full.Links = append(full.Links, trace.Link{Rank: r, Transport: "tcp", Sent: uint64(r % 50)})
	}
	b := Encode(full, wire.Brief)
	s, err := Decode(b)
	if err != nil || len(b) > briefMax {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	if last := s.Operations[len(s.Operations)-1]; len(s.Operations) != briefOperations || !last.Running() || last.Seq != Length {
		t.Errorf("operations %v", s.Operations)
	}
	if len(s.Links) != briefLinks || s.Links[0].Rank+s.Links[1].Rank != 90+91 || s.Links[2].Sent != 49 || full.Links[0].Rank != 0 {
		t.Errorf("links %+v", s.Links)
	}
}

// A truncated snapshot is an error, at any length.
func TestDecodeTruncated(t *testing.T) {
	b := Encode(snapshot(ended(reduction(6, 0), trace.OK), late(reduction(7, 1), 2)), wire.Full)
	for n := range b {
		if s, err := Decode(b[:n]); err == nil {
			t.Fatalf("%d of %d bytes are read as %+v", n, len(b), s)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":           ``,
		"another thing":     `[]`,
		"no such rank":      `{"rank":4,"size":4}`,
		"a negative rank":   `{"rank":-1,"size":4}`,
		"a control code":    `{"size":1,"name":"a\u001b[2J"}`,
		"no peer":           `{"size":1,"operations":[{"peer":-2}]}`,
		"negative time":     `{"size":1,"operations":[{"seconds":-1}]}`,
		"negative rest":     `{"size":1,"operations":[{"still":-1}]}`,
		"a long time":       `{"size":1,"operations":[{"seconds":1e300}]}`,
		"a century":         `{"size":1,"time":"2026-01-01T00:00:00Z","operations":[{"start":"2026-01-01T00:00:00Z","seconds":3.2e9}]}`,
		"a century ago":     `{"size":1,"time":"2026-01-01T00:00:00Z","operations":[{"start":"1926-01-01T00:00:00Z"}]}`,
		"in a century":      `{"size":1,"time":"2026-01-01T00:00:00Z","operations":[{"start":"2126-01-01T00:00:00Z"}]}`,
		"many ranks":        `{"size":1,"operations":[{"waiting":[0` + strings.Repeat(",1", WaitingMax) + `]}]}`,
		"many operations":   `{"size":1,"operations":[{}` + strings.Repeat(",{}", historyOperations) + `]}`,
		"a long text":       `{"size":1,"operations":[{"op":"` + strings.Repeat("x", nameMax+1) + `"}]}`,
		"many counters":     `{"size":1,"counters":[{}` + strings.Repeat(",{}", encodedCounters) + `]}`,
		"negative ranks":    `{"size":1,"counters":[{"ranks":-1}]}`,
		"negative calls":    `{"size":1,"counters":[{"calls":-1}]}`,
		"negative wait":     `{"size":1,"counters":[{"waited":-1}]}`,
		"negative sum":      `{"size":1,"counters":[{"durations":{"sum":-1}}]}`,
		"a low bucket":      `{"size":1,"counters":[{"durations":{"first":-25}}]}`,
		"a high bucket":     `{"size":1,"counters":[{"durations":{"first":16,"counts":[0,1]}}]}`,
		"many durations":    `{"size":1,"counters":[{"durations":{"counts":[72057594037927937]}}]}`,
		"waits for no rank": `{"size":1,"counters":[{"waited_for":[{"rank":-1}]}]}`,
		"waits for many":    `{"size":1,"counters":[{"waited_for":[{}` + strings.Repeat(",{}", trace.WaitedForMax) + `]}]}`,
		"an operation":      `{"size":1,"counters":[{"op":"\u001b"}]}`,
		"negative heap":     `{"size":1,"process":{"heap_bytes":-1}}`,
		"negative memory":   `{"size":1,"process":{"shared_bytes":-1}}`,
		"negative stall":    `{"size":1,"links":[{"stalled":-1}]}`,
		"more than allowed": `{"size":1}` + strings.Repeat(" ", EncodedMax),
	} {
		if s, err := Decode([]byte(text)); err == nil {
			t.Errorf("%s: read as %+v", name, s)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(snapshot(ended(reduction(6, 0), trace.OK), late(reduction(7, 1), 2)), wire.Full))
	f.Add(Encode(snapshot(call(3, "f")), wire.Full))
	f.Add([]byte(`{"size":1,"operations":[{"seconds":1e9,"waiting":[0]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(Encode(s, wire.Full))
		if err != nil {
			t.Fatalf("%s is read as %+v, but written as what is not: %v", b, s, err)
		}
		if len(again.Operations) > len(s.Operations) {
			t.Fatalf("%d operations of %d", len(again.Operations), len(s.Operations))
		}
		_ = s.String()
		if err := trace.WriteTable(new(strings.Builder), []trace.Snapshot{s, again}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestEncodeCounters: counters are kept when operations and links do not fit, and read as they were.
func TestEncodeCounters(t *testing.T) {
	want := snapshot()
	var d trace.Durations
	for bucket := trace.DurationFirst; bucket <= trace.DurationLast; bucket += 2 {
		CountDuration(&d, time.Duration(math.Ldexp(float64(time.Second), bucket)), 1000)
	}
	for i := range encodedCounters {
		c := trace.Counter{Op: "all_reduce_buckets", Ranks: i, Plan: "ring of hosts in shared memory", Calls: 1 << 40, Failed: 3, Bytes: 1 << 60, Durations: d, Waited: 1 << 60}
		for r := range trace.WaitedForMax {
			c.WaitedFor = append(c.WaitedFor, trace.RankTime{Rank: 1000 + r, Time: 1 << 50})
		}
		want.Counters = append(want.Counters, c)
	}
	want.Process = trace.Process{Goroutines: 1, HeapBytes: 2, LentBuffers: 3, IdleBytes: 4, SharedBytes: 5, Dials: 6, DialFailures: 7, Failures: 8, Recoveries: 9, Recovery: 10, CertificateEnd: at(1)}
	long := want
	long.Counters = append(long.Counters, trace.Counter{Op: "barrier"})
	for i := range 1000 {
		long.Links = append(long.Links, trace.Link{Rank: i, Transport: "tcp", Class: "tcp", Sent: 1 << 60, Connections: 1, Stalls: 2, Stalled: 3})
		long.Operations = append(long.Operations, ended(reduction(uint64(i), 0), trace.OK))
	}
	b := Encode(long, wire.Full)
	got, err := Decode(b)
	if err != nil || len(b) > EncodedMax || len(got.Links) < encodedLinks/16 || len(got.Links) == encodedLinks {
		t.Fatalf("%d bytes with %d links and %d operations, %v", len(b), len(got.Links), len(got.Operations), err)
	}
	got.Links, got.Operations = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for i := range want.Counters { // A node with such names is faulty; the seed must be able to send its snapshot.
		want.Counters[i].Op, want.Counters[i].Plan = strings.Repeat("<", nameMax), strings.Repeat("<", nameMax)
	}
	if b := Encode(want, wire.Full); len(b) > EncodedMax {
		t.Errorf("%d bytes", len(b))
	}
}

// Links of other nodes are bounded and checked.
func TestDecodeLinks(t *testing.T) {
	many := snapshot()
	for i := range 1000 {
		many.Links = append(many.Links, trace.Link{Rank: i, Transport: strings.Repeat("\x1b", 100), Sent: 1 << 60, Received: 1 << 60})
	}
	s, err := Decode(Encode(many, wire.Full))
	if err != nil || len(s.Links) != encodedLinks {
		t.Errorf("%d links, %v; want %d", len(s.Links), err, encodedLinks)
	}
	for _, links := range []string{`[{"rank":-1}]`, `[{"rank":0,"transport":"\u001b"}]`, `[{"rank":0,"sent":-1}]`} {
		b := []byte(`{"node":"a","rank":0,"size":1,"epoch":1,"time":"2020-01-01T00:00:00Z","operations":[],"links":` + links + `}`)
		if _, err := Decode(b); err == nil {
			t.Errorf("links %s are accepted", links)
		}
	}
}
