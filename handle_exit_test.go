package nexar_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestHandleOfFunctionThatExits: a function that calls runtime.Goexit is treated as one that panics.
// All ranks get an error, and the vector can be used again.
func TestHandleOfFunctionThatExits(t *testing.T) {
	comms := worldtest.Local(t, 3, nexar.Config{Algorithms: []string{"all_reduce=staged"}})
	const why = "its goroutine was ended by runtime.Goexit"
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) (err error) {
		x := []int32{1, 2, 3}
		h := nexar.StartAllReduceFunc(t.Context(), c, x, func(dst, src []int32) {
			if rank == 0 {
				runtime.Goexit()
			}
			addTo(dst, src)
		})
		defer func() {
			v := recover()
			if e, ok := v.(error); rank == 0 && !(ok && errors.Is(e, callback.ErrExited) && strings.Contains(e.Error(), "all_reduce_func")) || rank > 0 && v != nil {
				t.Errorf("rank %d: recovered %v", rank, v)
			}
			if again := nexar.StartAllReduce(t.Context(), c, x, nexar.Sum).Wait(); !errors.Is(again, nexar.ErrRevoked) {
				t.Errorf("rank %d: %v later, want ErrRevoked", rank, again)
			}
		}()
		err = h.Wait()
		if rank > 0 && !(errors.Is(err, nexar.ErrRevoked) && strings.Contains(err.Error(), why)) {
			return fmt.Errorf("rank %d: %w, want ErrRevoked and why", rank, err)
		}
		return nil
	})
}

// TestFunctionThatExits: the calling goroutine ends, and the communicator as if the function had
// panicked.
func TestFunctionThatExits(t *testing.T) {
	comms := worldtest.Local(t, 2, nexar.Config{})
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		returned, ended := false, make(chan struct{})
		var err error
		go func() {
			defer close(ended)
			err = nexar.AllReduceFunc(t.Context(), c, []int32{1}, func(dst, src []int32) {
				runtime.Goexit()
			})
			returned = true
		}()
		<-ended
		if returned && !errors.Is(err, nexar.ErrRevoked) {
			return fmt.Errorf("rank %d: %w, want ErrRevoked", rank, err)
		}
		if err := c.Err(); !errors.Is(err, nexar.ErrRevoked) {
			return fmt.Errorf("rank %d, later: %w, want ErrRevoked", rank, err)
		}
		return nil
	})
}

// TestFollowerThatExits: a Handle fails if its function does not return.
func TestFollowerThatExits(t *testing.T) {
	c := worldtest.Local(t, 1, nexar.Config{})[0]
	h := nexar.Follow(c, func(*nexar.Handle) error {
		runtime.Goexit()
		return nil
	})
	if err := h.Wait(); !errors.Is(err, callback.ErrExited) {
		t.Errorf("got %v, want %v", err, callback.ErrExited)
	}
}

func addTo(dst, src []int32) {
	for i, v := range src {
		dst[i] += v
	}
}
