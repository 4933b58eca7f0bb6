package main

import (
	"cmp"
	"context"
	"net"
	"path/filepath"

	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/stream"
)

// Factory returns a factory of transports over unix sockets in a directory. The name of a
// node's socket is the ID of the node, and that of the seed's socket is "seed".
func Factory(dir string) transport.Factory {
	return transport.Factory{Name: "unix", Listen: func(_ context.Context, env transport.Env) (transport.Transport, error) {
		cfg := stream.Config{Name: "unix", Locality: transport.SameHost, Dial: dial}
		if env.Server != nil { // Otherwise this process only dials a seed.
			l, err := net.Listen("unix", filepath.Join(dir, cmp.Or(env.Node, "seed")))
			if err != nil {
				return nil, err
			}
			cfg.Listener = l
		}
		return stream.New(cfg, env)
	}}
}

func dial(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", addr)
}
