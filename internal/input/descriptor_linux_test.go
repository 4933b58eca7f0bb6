package input

import (
	"fmt"
	"os"
	"testing"
)

// A descriptor of this process, as of a shell's <(command), is read by its path.
func TestDescriptor(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	path := fmt.Sprintf("/dev/fd/%d", r.Fd())
	if b, err := Read(t.Context(), path, limit, nil); err != nil || string(b) != "text" {
		t.Errorf("got %q, %v", b, err)
	}
}
