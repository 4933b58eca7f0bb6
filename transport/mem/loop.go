package mem

import (
	"context"

	"github.com/nexar-go/nexar/transport"
)

// Loop makes both ends of a connection to oneself, on a network of its own.
func Loop(ctx context.Context) (out, in transport.Conn, err error) {
	network := NewNetwork()
	a, err := network.Listen("a")
	if err != nil {
		return nil, nil, err
	}
	b, err := network.Listen("b")
	if err != nil {
		return nil, nil, err
	}
	if out, err = a.Dial(ctx, "b", "b"); err != nil {
		return nil, nil, err
	}
	in, err = b.Accept(ctx)
	return out, in, err
}
