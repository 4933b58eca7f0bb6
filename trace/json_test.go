package trace

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestJSON(t *testing.T) {
	want := snapshot(late(reduction(7, 1), 2, 3), ended(call(1, "f"), Failed))
	want.Operations[1].Duration = 1234567 * time.Nanosecond
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"op":"all_reduce"`, `"seconds":3`, `"round":1`, `"waiting":[2,3]`, `"peer":1`, `"outcome":"failed"`, `"seconds":0.001234567`} {
		if !strings.Contains(string(b), part) {
			t.Errorf("no %s in %s", part, b)
		}
	}
	if strings.Contains(string(b), "-1") {
		t.Errorf("unset ranks in %s", b)
	}
	var got Snapshot
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
}
