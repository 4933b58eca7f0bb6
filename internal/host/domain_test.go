package host

import (
	"fmt"
	"testing"
	"testing/fstest"
)

// TestDomain: processors are in the domain of their last-level cache, or of their NUMA node if the system
// shows no caches.
func TestDomain(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text + "\n")} }
	caches, nodes := make(fstest.MapFS), make(fstest.MapFS)
	for cpu := range 16 {
		dir := fmt.Sprintf("cpu%d/", cpu)
		caches[dir+"cache/index0/level"], caches[dir+"cache/index0/shared_cpu_list"] = file("1"), file(fmt.Sprint(cpu))
		caches[dir+"cache/index1/level"] = file("3")
		caches[dir+"cache/index1/shared_cpu_list"] = file([]string{"0-3,8-11", "4-7,12-15"}[cpu/4%2])
		caches[dir+"cache/index2/level"], caches[dir+"cache/index2/shared_cpu_list"] = file("2"), file(fmt.Sprint(cpu))
		nodes[dir+fmt.Sprintf("node%d/cpulist", cpu/8)] = file("")
	}
	for _, test := range []struct {
		system     fstest.MapFS
		processors []int
		want       uint16
	}{
		{caches, []int{0}, 1}, {caches, []int{3, 8, 9}, 1}, {caches, []int{4, 15}, 5}, {caches, []int{3, 4}, 0},
		{nodes, []int{0, 7}, nodeDomain}, {nodes, []int{8, 15}, nodeDomain + 1}, {nodes, []int{7, 8}, 0},
		{fstest.MapFS{}, []int{0}, 0}, {caches, nil, 0},
		{fstest.MapFS{"cpu0/cache/index0/level": file("x")}, []int{0}, 0},
		{fstest.MapFS{"cpu0/cache/index0/level": file("1"), "cpu0/cache/index0/shared_cpu_list": file("?")}, []int{0}, 0},
		{fstest.MapFS{"cpu0/cache/index0/level": file("1"), "cpu0/cache/index0/shared_cpu_list": file("99999")}, []int{0}, 0},
		{fstest.MapFS{"cpu0/node0/cpulist": file(""), "cpu0/node1/cpulist": file("")}, []int{0}, 0},
	} {
		if got := domainOf(test.system, test.processors); got != test.want {
			t.Errorf("processors %v of %d files: %d, want %d", test.processors, len(test.system), got, test.want)
		}
	}
	Domain() // of this system, which may show nothing
}
