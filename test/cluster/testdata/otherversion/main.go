// Command otherversion is a seed or a node. Its test builds it with another version of the protocol.
//
//	otherversion seed                  listens until standard input ends, and prints its address
//	otherversion node TRANSPORT SEED   joins, and prints whether the error is an ErrVersion, and the error
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nexar-go/nexar"
)

// token is the cluster token of the test.
const token = "nwvw-qb5h-3oh2-aymg-2djq-heue-stv2-xafu-prqy-kkop-kux6-cppc-n6sq"

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if args[0] == "seed" {
		seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, Token: token})
		if err != nil {
			return err
		}
		fmt.Println(seed.Addr())
		_, err = io.Copy(io.Discard, os.Stdin)
		return errors.Join(err, seed.Close())
	}
	node, err := nexar.Join(ctx, nexar.Config{Seeds: args[2:], Token: token, Listen: "127.0.0.1:0", Transports: args[1:2]})
	if err == nil {
		return errors.Join(errors.New("the node has joined"), node.Close())
	}
	_, err = fmt.Println(errors.Is(err, nexar.ErrVersion), err)
	return err
}
