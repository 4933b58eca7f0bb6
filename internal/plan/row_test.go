package plan

import "testing"

// If every message takes one unit of time, the longest row has as many messages as the depth of
// the plans.
func TestLongestIsDepth(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c Collective, a Algorithm) {
		for _, h := range someHosts() {
			plans := a.Plans(h.Size(), h.Size()/2)
			want, err := Depth(plans)
			if err != nil {
				t.Fatal(err)
			}
			got, err := h.Longest(plans, Tolls{}, Tolls{Toll{Each: 1}, Toll{Each: 1}})
			if err != nil || got[0] != (Row{}) || got[1].Near+got[1].Far != want {
				t.Errorf("%v: %+v, want %d messages (%v)", h, got, want, err)
			}
		}
	})
}

// The longest row depends on the tolls.
func TestLongestRow(t *testing.T) {
	t.Parallel()
	h := hostsOf([]int{0, 0, 0, 0, 1, 1, 1, 1})
	for _, test := range []struct {
		name      string
		near, far Toll
		want      Row
	}{
		{"ring", Toll{Each: 1}, Toll{Each: 9}, Row{10, 4, 10, 4}},
		{"recursive-doubling", Toll{Each: 1, Chunk: 1}, Toll{Each: 9, Chunk: 1}, Row{2, 1, 2, 1}},
		{"rabenseifner", Toll{Chunk: 1}, Toll{Chunk: 9}, Row{4, 2, 12, 2}},
	} {
		for _, a := range Algorithms(AllReduce) {
			if a.Name != test.name {
				continue
			}
			got, err := h.Longest(a.Plans(8, 0), Tolls{test.near, test.far})
			if err != nil || got[0] != test.want {
				t.Errorf("%s, %+v near, %+v far: got %+v, want %+v (%v)", a.Name, test.near, test.far, got, test.want, err)
			}
		}
	}
}

func TestLongestFindsDeadlock(t *testing.T) {
	d0, t0 := one(Data, 0), one(Temp, 0)
	_, err := hostsOf([]int{0, 0}).Longest([]Plan{
		rounds(1, Round{send(d0, 1)}, Round{recv(t0, 1)}), rounds(1, Round{send(d0, 0)}, Round{recv(t0, 0)})}, Tolls{})
	if err == nil {
		t.Error("no error")
	}
}
