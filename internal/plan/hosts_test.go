package plan

import (
	"slices"
	"testing"
)

func TestHostsOf(t *testing.T) {
	h := HostsOf([]string{"b", "a", "b", "c", "a", "b"})
	if h.Size() != 6 || h.Count() != 3 || h.Most() != 3 || h.least() != 1 || !h.Crowded() || h.inOrder() {
		t.Errorf("%+v: %d ranks, %d hosts of %d to %d ranks", h, h.Size(), h.Count(), h.least(), h.Most())
	}
	if !h.Same(0, 5) || h.Same(0, 1) {
		t.Error("ranks 0 and 5 are on one host, 0 and 1 are not")
	}
	for _, names := range [][]string{nil, {"a"}, {"a", "a"}, {"a", "b"}} {
		if h := HostsOf(names); h.Crowded() || h.Size() != len(names) || !h.inOrder() {
			t.Errorf("%q: %+v", names, h)
		}
	}
	for _, test := range []struct {
		of   []int
		want bool
	}{
		{[]int{0, 0, 1, 1}, true}, {[]int{0, 1, 2}, true}, {[]int{0, 1, 0, 1}, false}, {[]int{0, 0, 1}, false},
		{[]int{0, 0, 1, 1, 2, 2}, false}, {[]int{0, 0, 0, 1, 1, 1}, false},
	} {
		if got := hostsOf(test.of).canonical(); got != test.want {
			t.Errorf("%v: canonical is %v", test.of, got)
		}
	}
}

func TestEvenHosts(t *testing.T) {
	for _, test := range []struct {
		ranks, perHost int
		of             []int
	}{{6, 2, []int{0, 0, 1, 1, 2, 2}}, {5, 3, []int{0, 0, 0, 1, 1}}, {3, 1, []int{0, 1, 2}}, {2, 4, []int{0, 0}}, {0, 2, nil}} {
		got, want := EvenHosts(test.ranks, test.perHost), hostsOf(test.of)
		if !slices.Equal(got.of, want.of) || !slices.EqualFunc(got.ranks, want.ranks, slices.Equal) {
			t.Errorf("%d ranks, %d on each host: got %+v, want %+v", test.ranks, test.perHost, got, want)
		}
	}
}

func TestFirstHosts(t *testing.T) {
	h := hostsOf([]int{0, 1, 2, 0, 1, 2, 0, 0})
	for _, test := range []struct {
		hosts, ranks int
		want         []int
	}{
		{2, 2, []int{0, 1, 0, 1}}, {2, 9, []int{0, 1, 0, 1, 0, 0}}, {9, 1, []int{0, 1, 2}}, {9, 9, h.of},
	} {
		got, want := h.First(test.hosts, test.ranks), hostsOf(test.want)
		if !slices.Equal(got.of, want.of) || got.Count() != want.Count() || got.Most() != want.Most() {
			t.Errorf("first %d hosts, %d ranks: got %v, want %v", test.hosts, test.ranks, got.of, test.want)
		}
	}
}
