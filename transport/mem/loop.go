package mem

import (
	"context"

	"github.com/nexar-go/nexar/transport"
)

// Loop returns both ends of a new connection, on a separate network.
func Loop(ctx context.Context) (dialed, accepted transport.Conn, err error) {
	network := NewNetwork()
	a, err := network.Listen("a")
	if err != nil {
		return nil, nil, err
	}
	b, err := network.Listen("b")
	if err != nil {
		return nil, nil, err
	}
	if dialed, err = a.Dial(ctx, "b", "b"); err != nil {
		return nil, nil, err
	}
	accepted, err = b.Accept(ctx)
	return dialed, accepted, err
}
