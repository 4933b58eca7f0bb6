//go:build unix

//race:none its tests start processes, which the detector does not see

package grafana

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testbuild"
)

// programs are the command nexar.
var programs = testbuild.Set{Build: func(dir string) error {
	return testbuild.Go("build", "-ldflags=-s -w", "-o", dir+string(filepath.Separator), "../../cmd/nexar")
}}

// isRank makes the test binary a rank.
const isRank = "GRAFANA_TEST_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(isRank) == "" {
		os.Exit(programs.Around(m).Run())
	}
	if err := rank(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const (
	ranks = 8
	// lateRank does something else for late before each all-reduce.
	lateRank = 3
	late     = 60 * time.Millisecond
	// stoppedRank gets messages of messageBytes from sendingRank all the time, so that one is under way when its process is stopped.
	stoppedRank, sendingRank = 5, 4
	messageBytes             = 128 << 20
	// ended is the file that ends the ranks.
	ended = "ended"
)

// rank works until the file ended exists.
func rank(ctx context.Context) error {
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	defer node.Close()
	c := node.World()
	done := make(chan error, 1)
	go func() { done <- messages(ctx, c) }()
	for isOver := false; !isOver; {
		if c.Rank() == lateRank {
			time.Sleep(late)
		}
		_, err := os.Stat(ended)
		flag := []int32{0}
		if err == nil {
			flag[0] = 1
		}
		if err := nexar.AllReduce(ctx, c, flag, nexar.Max); err != nil {
			return err
		}
		isOver = flag[0] == 1
	}
	return <-done
}

// messages sends and receives the messages. The last one has tag 1.
func messages(ctx context.Context, c *nexar.Comm) error {
	data := make([]byte, messageBytes)
	switch c.Rank() {
	case sendingRank:
		for tag := nexar.Tag(0); tag == 0; {
			if _, err := os.Stat(ended); err == nil {
				tag = 1
			}
			if err := nexar.Send(ctx, c, data, stoppedRank, tag); err != nil {
				return err
			}
			if tag == 1 {
				return nil
			}
		}
	case stoppedRank:
		for {
			got, err := nexar.Recv(ctx, c, data, sendingRank, nexar.AnyTag)
			if err != nil || got.Tag == 1 {
				return err
			}
		}
	}
	return nil
}
