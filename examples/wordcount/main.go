// Command wordcount counts words with all ranks. Rank 0 reads the text and gives each rank some of the lines, each rank adds the
// counts of some of the words, and rank 0 prints the most frequent ones.
//
//	go run ./cmd/nexar run -n 4 -- go run ./examples/wordcount
//
// With the name of a file it counts its words instead of those of a poem.
package main

import (
	"context"
	_ "embed" // for the poem
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/nexar-go/nexar"
)

//go:embed jabberwocky.txt
var poem string

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	defer node.Close()
	world := node.World()

	var lines []string
	if world.Rank() == 0 {
		if lines, err = read(); err != nil {
			return err
		}
	}
	words, err := count(ctx, world, lines)
	if err != nil {
		return err
	}
	for _, w := range words[:min(5, len(words))] {
		fmt.Printf("%s %d\n", w.Text, w.Count)
	}
	return nil
}

// read returns the lines of the text.
func read() ([]string, error) {
	text := poem
	if len(os.Args) > 1 {
		b, err := os.ReadFile(os.Args[1])
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	return strings.Split(text, "\n"), nil
}
