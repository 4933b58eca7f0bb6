// Command transport_unix is a seed or a node of a cluster over unix sockets, without QUIC,
// TCP and UDP. The transport, in unix.go, uses the public contract only. The guide
// docs/guide/writing-a-transport.md explains it.
//
//	mkdir -p /tmp/demo; export NEXAR_CLUSTER_TOKEN=$(nexar token)
//	transport_unix seed 4 /tmp/demo &
//	for i in 1 2 3 4; do NEXAR_SEEDS=unix=/tmp/demo/seed transport_unix node /tmp/demo & done; wait
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/transport"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 3 && args[0] == "seed":
		world, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return seed(ctx, world, args[2])
	case len(args) == 2 && args[0] == "node":
		return node(ctx, args[1])
	}
	return errors.New("usage: transport_unix seed WORLD DIR | node DIR")
}

func seed(ctx context.Context, world int, dir string) error {
	s, err := nexar.StartSeed(ctx, nexar.SeedConfig{
		World: world, Transports: []string{"unix"}, Factories: []transport.Factory{Factory(dir)},
	})
	if err != nil {
		return err
	}
	fmt.Println("seed at", s.Addr())
	<-s.Done()
	return s.Close()
}

func node(ctx context.Context, dir string) error {
	n, err := nexar.Join(ctx, nexar.Config{
		Transports: []string{"unix"}, Factories: []transport.Factory{Factory(dir)},
	})
	if err != nil {
		return err
	}
	defer n.Close()
	sum := make([]float64, 1<<16)
	for i := range sum {
		sum[i] = float64(n.World().Rank() + 1)
	}
	if err := nexar.AllReduce(ctx, n.World(), sum, nexar.Sum); err != nil {
		return err
	}
	path := n.Peers()[0].Transport
	fmt.Printf("rank %d of %d: sum %v over %s\n", n.World().Rank(), n.World().Size(), sum[len(sum)-1], path)
	return n.World().Barrier(ctx)
}
