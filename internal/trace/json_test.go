package trace

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func snapshot(operations ...Operation) Snapshot {
	return Snapshot{Node: "abcd", Name: "train", Rank: 1, Size: 4, Epoch: 1, Time: at(10), Operations: operations}
}

func TestJSON(t *testing.T) {
	want := snapshot(late(reduction(7, 1), 2, 3), ended(call(1, "f"), Failed))
	want.Operations[1].Took = 1234567 * time.Nanosecond
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"op":"all_reduce"`, `"seconds":3`, `"round":1`, `"waiting":[2,3]`, `"peer":1`, `"end":"failed"`, `"seconds":0.001234567`} {
		if !strings.Contains(string(b), part) {
			t.Errorf("no %s in %s", part, b)
		}
	}
	if strings.Contains(string(b), "-1") {
		t.Errorf("ranks that there are not, in %s", b)
	}
	var got Snapshot
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
}

// What is encoded is bounded, whatever there is, and what is under way stays
// longest.
func TestEncode(t *testing.T) {
	var many []Operation
	for i := range Length {
		o := call(i, strings.Repeat("\x01\"", functionMax/2))
		o.Began, o.Plan, o.Use = at(i), strings.Repeat("p", nameMax), strings.Repeat("u", nameMax)
		if i%16 == 0 {
			waiting := make([]int, 1000)
			for k := range waiting {
				waiting[k] = 1_000_000 + k
			}
			o.SetWaiting(waiting)
		} else {
			o.End = OK
		}
		many = append(many, o)
	}
	b := Encode(snapshot(many...))
	if len(b) > EncodedMax {
		t.Fatalf("%d bytes, at most %d are allowed", len(b), EncodedMax)
	}
	s, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := range s.Operations {
		n += sign(s.Operations[i].UnderWay())
	}
	if n != Length/16 || len(s.Operations) < n {
		t.Errorf("%d of %d operations are under way, want all %d", n, len(s.Operations), Length/16)
	}

	few := snapshot(ended(reduction(6, 0), OK), late(reduction(7, 1), 2))
	if s, err := Decode(Encode(few)); err != nil || !reflect.DeepEqual(s, few) {
		t.Errorf("read %+v, %v; want %+v", s, err, few)
	}
}

// A snapshot that is cut off is an error, wherever that is.
func TestDecodeTruncated(t *testing.T) {
	b := Encode(snapshot(ended(reduction(6, 0), OK), late(reduction(7, 1), 2)))
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
		"a long time":       `{"size":1,"operations":[{"seconds":1e300}]}`,
		"many ranks":        `{"size":1,"operations":[{"waiting":[0` + strings.Repeat(",1", WaitingMax) + `]}]}`,
		"many operations":   `{"size":1,"operations":[{}` + strings.Repeat(",{}", encodedOperations) + `]}`,
		"a long text":       `{"size":1,"operations":[{"op":"` + strings.Repeat("x", nameMax+1) + `"}]}`,
		"more than allowed": `{"size":1}` + strings.Repeat(" ", EncodedMax),
	} {
		if s, err := Decode([]byte(text)); err == nil {
			t.Errorf("%s: read as %+v", name, s)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(snapshot(ended(reduction(6, 0), OK), late(reduction(7, 1), 2))))
	f.Add(Encode(snapshot(call(3, "f"))))
	f.Add([]byte(`{"size":1,"operations":[{"seconds":1e9,"waiting":[0]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(Encode(s))
		if err != nil {
			t.Fatalf("%s is read as %+v, but written as what is not: %v", b, s, err)
		}
		if len(again.Operations) > len(s.Operations) {
			t.Fatalf("%d operations of %d", len(again.Operations), len(s.Operations))
		}
		_ = s.String()
		if err := Table(new(strings.Builder), []Snapshot{s, again}); err != nil {
			t.Fatal(err)
		}
	})
}
