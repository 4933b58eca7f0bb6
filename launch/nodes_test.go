package launch_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/launch"
)

func TestExpandNodes(t *testing.T) {
	for list, want := range map[string]string{
		"n1":                "n1",
		"n[1-3,7]":          "n1 n2 n3 n7",
		"n[3,1]":            "n3 n1",
		"n[01-10]":          "n01 n02 n03 n04 n05 n06 n07 n08 n09 n10",
		"n[098-101]":        "n098 n099 n100 n101",
		"n[9-11]":           "n9 n10 n11",
		"rack[0-1]n[0-2]":   "rack0n0 rack0n1 rack0n2 rack1n0 rack1n1 rack1n2",
		"r[0-1][2-3]":       "r02 r03 r12 r13",
		"a,b[2-3],c":        "a b2 b3 c",
		"n[1-2]-ib0":        "n1-ib0 n2-ib0",
		"n[0-8:4,20]":       "n0 n4 n8 n20",
		"[1-2]":             "1 2",
		"gpu-a.b.example,c": "gpu-a.b.example c",
	} {
		got, err := launch.ExpandNodes(list)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("ExpandNodes(%q) = %v, %v, want %s", list, got, err, want)
		}
	}
}

func TestExpandNodesErrors(t *testing.T) {
	for list, want := range map[string]string{
		"":                                       "is no name",
		",":                                      "is no name",
		"a,,b":                                   "is no name",
		"a,":                                     "is no name",
		"a b":                                    "is no name",
		"n[":                                     "has no ]",
		"n[1-3":                                  "has no ]",
		"n]":                                     "brackets do not match",
		"n[1-3]]":                                "brackets do not match",
		"n[[1-3]]":                               "brackets do not match",
		"n[]":                                    "is no range",
		"n[3-1]":                                 "is no range",
		"n[1-]":                                  "is no range",
		"n[a-b]":                                 "is no range",
		"n[1-2-3]":                               "is no range",
		"n[+1-2]":                                "is no range",
		"n[1-4:0]":                               "is no range",
		"n[1:2]":                                 "is no range",
		"n[0-1048576]":                           "more than 1048576",
		"n[0-99999999999]":                       "is no range",
		"a,n[0-1023][0-1023]":                    "more than 1048576",
		"n[0-1048575],m":                         "more than 1048576",
		strings.Repeat("x", 100):                 "",
		"n[" + strings.Repeat("0", 1000) + "-9]": "is no range",
		strings.Repeat("x", 1<<20) + "[0-99]":    "64 MiB",
	} {
		got, err := launch.ExpandNodes(list)
		if want == "" {
			if err != nil {
				t.Errorf("ExpandNodes(%q) = %v", list, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ExpandNodes(%q) = %d names, %v, want an error with %q", list, len(got), err, want)
		}
	}
}

func TestTasksPerNode(t *testing.T) {
	for s, want := range map[string][]int{"4": {4}, "4,1(x2)": {4, 1, 1}, "2(x3)": {2, 2, 2}, "0,3": {0, 3}} {
		if got, err := launch.TasksPerNode(s); err != nil || !slices.Equal(got, want) {
			t.Errorf("TasksPerNode(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "x", "1(x", "1(x2", "1(x0)", "1(2)", "-1", "1,,2", "1(x1048577)", "1(x1048576),1", "1(x99999999999)", "1 (x2)"} {
		if got, err := launch.TasksPerNode(s); err == nil {
			t.Errorf("TasksPerNode(%q) = %d nodes, want an error", s, len(got))
		}
	}
}
