package nexar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// patience bounds operations that take milliseconds on an idle machine.
const patience = time.Minute

var errEnough = errors.New("the user has had enough")

// localCluster returns the ranks of a new world of Local. The end of the test closes them.
func localCluster(t testing.TB, n int, cfg Config) []*Comm {
	t.Helper()
	if cfg.CollectiveTimeout == 0 {
		cfg.CollectiveTimeout = 3 * patience
	}
	comms, err := Local(t.Context(), n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := forEach(n, func(rank int) error { return comms[rank].Close() }); err != nil {
			t.Errorf("close: %v", err)
		}
		clear(comms)
	})
	return comms
}

// forEach calls f for n ranks at the same time and joins the errors.
func forEach(n int, f func(rank int) error) error {
	errs := make([]error, n)
	var ranks sync.WaitGroup
	for rank := range n {
		ranks.Go(func() {
			if err := f(rank); err != nil {
				errs[rank] = fmt.Errorf("rank %d of %d: %w", rank, n, err)
			}
		})
	}
	ranks.Wait()
	return errors.Join(errs...)
}

// onAll calls f for all ranks at the same time. An error of a rank ends the test.
func onAll(t testing.TB, comms []*Comm, f func(rank int, c *Comm) error) {
	t.Helper()
	if err := forEach(len(comms), func(rank int) error { return f(rank, comms[rank]) }); err != nil {
		t.Fatal(err)
	}
}

// recvError receives a message of one number and returns only the error.
func recvError(ctx context.Context, c *Comm, from int, tag Tag) error {
	_, err := Recv(ctx, c, make([]int32, 1), from, tag)
	return err
}
