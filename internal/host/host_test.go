//race:none it starts no goroutine

package host

import (
	"testing"
)

// TestID: the ID does not change between calls.
func TestID(t *testing.T) {
	id := ID()
	if id == "" {
		t.Fatal("the host has no id")
	}
	for range 3 {
		if again := ID(); again != id {
			t.Errorf("ID() = %q, then %q", id, again)
		}
	}
}

// TestMachine: containers with different network namespaces are on the same machine.
func TestMachine(t *testing.T) {
	boot := "3a0f5e6c-5e9c-4b0c-8f6e-0d6a1c9b7e11"
	if got := Machine(boot + "/net:[4026531840]"); got != boot {
		t.Errorf("the machine is %q, want %q", got, boot)
	}
	for _, id := range []string{"", "name/0102030405060708", boot} {
		if got := Machine(id); got != id {
			t.Errorf("the machine of %q is %q, want the same", id, got)
		}
	}
}
