// Command seed_worker is a seed and its workers in one program, for several hosts without the
// command nexar. Start the seed in one shell:
//
//	go run ./examples/seed_worker seed -listen 127.0.0.1:7946 -world 2
//
// It prints a token. Start the workers in two others:
//
//	export NEXAR_SEEDS=127.0.0.1:7946 NEXAR_CLUSTER_TOKEN=…
//	go run ./examples/seed_worker worker
//
// On several hosts the seed listens at ":7946", and NEXAR_SEEDS has the address of its host.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/nexar-go/nexar"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: seed_worker seed [-listen ADDRESS] [-world COUNT] | worker")
	}
	ctx := context.Background()
	var err error
	switch os.Args[1] {
	case "seed":
		err = seed(ctx, os.Args[2:])
	case "worker":
		err = worker(ctx)
	default:
		err = fmt.Errorf("unknown mode %q: want seed or worker", os.Args[1])
	}
	if err != nil {
		log.Fatal(err)
	}
}

// seed admits nodes, and returns when all have left.
func seed(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("seed", flag.ExitOnError)
	listen := flags.String("listen", ":7946", "address at which the workers reach the seed")
	world := flags.Int("world", 2, "number of workers")
	if err := flags.Parse(args); err != nil {
		return err
	}

	token := os.Getenv("NEXAR_CLUSTER_TOKEN")
	if token == "" {
		token = nexar.NewToken()
		fmt.Println("NEXAR_CLUSTER_TOKEN=" + token)
	}
	s, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: *listen, World: *world, Token: token})
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Println("NEXAR_SEEDS=" + s.Addr())
	if err := s.Wait(ctx); err != nil {
		return err
	}
	fmt.Println("the world has formed")
	<-s.Done()
	fmt.Println("all workers have left")
	return nil
}

// worker joins and takes part in an all-reduce.
func worker(ctx context.Context) error {
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	defer node.Close()
	world := node.World()

	sum := []int64{int64(os.Getpid())}
	if err := nexar.AllReduce(ctx, world, sum, nexar.Sum); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: the sum of our process IDs is %d\n", world.Rank(), world.Size(), sum[0])
	return nil
}
