package main

import (
	"cmp"
	"context"
	"net"
	"path/filepath"

	"github.com/nexar-go/nexar/transport"
)

const name = "unix"

// Factory returns a factory of transports over unix sockets in a directory. The name of a
// node's socket is the ID of the node, and that of the seed's socket is "seed".
func Factory(dir string) transport.Factory {
	return transport.Factory{Name: name, Listen: func(_ context.Context, env transport.Env) (transport.Transport, error) {
		if env.Server == nil {
			return newStreams(nil, env), nil // This process only dials a seed.
		}
		l, err := net.Listen("unix", filepath.Join(dir, cmp.Or(env.Node, "seed")))
		if err != nil {
			return nil, err
		}
		return newStreams(l, env), nil
	}}
}
