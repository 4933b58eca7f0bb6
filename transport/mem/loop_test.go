package mem_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
)

// TestLoop: Loop returns both ends of one connection.
func TestLoop(t *testing.T) {
	out, in, err := mem.Loop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	for _, ends := range [][2]transport.Conn{{out, in}, {in, out}} {
		sender, err := ends[0].OpenPipe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sender.Write([]byte("around")); err != nil {
			t.Fatal(err)
		}
		receiver, err := ends[1].AcceptPipe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 6)
		if _, err := receiver.Read(got); err != nil || string(got) != "around" {
			t.Errorf("got %q, error %v", got, err)
		}
	}
}

func TestLoopEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := mem.Loop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Loop: %v, want %v", err, context.Canceled)
	}
}
