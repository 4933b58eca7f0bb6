package comm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// views are Views that a test provides.
type views struct {
	mu      sync.Mutex
	newest  uint64
	nodes   []membership.Node // of the newest
	err     error
	changed chan struct{}
}

func newViews() *views { return &views{newest: 1, changed: make(chan struct{})} }

func (v *views) set(epoch uint64, err error, ids ...membership.NodeID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.newest, v.err, v.nodes = epoch, err, nil
	for _, id := range ids {
		v.nodes = append(v.nodes, membership.Node{ID: id})
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

func (v *views) Next(ctx context.Context, epoch uint64) (membership.View, error) {
	for {
		v.mu.Lock()
		newest, nodes, err, changed := v.newest, v.nodes, v.err, v.changed
		v.mu.Unlock()
		switch {
		case newest > epoch:
			return membership.View{Epoch: newest, Nodes: nodes}, nil
		case err != nil:
			return membership.View{}, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return membership.View{}, context.Cause(ctx)
		}
	}
}

// Lost implements Views.
func (v *views) Lost(membership.NodeID, error) {}

// untranslated implements Errors, and returns the errors of the engine.
type untranslated struct{ engine.Describer }

func (untranslated) Translate(_ *Comm, err error) error { return err }
func (untranslated) Ended(_ *Comm, cause error) error   { return cause }

// newComm returns a communicator without an engine, which the test stops.
func newComm(epoch uint64) *Comm {
	c := &Comm{
		View:    &ViewContext{Factory: &Factory{errors: untranslated{}}, View: membership.View{Epoch: epoch}},
		stopped: make(chan struct{}),
	}
	c.closing.Do(func() {})
	return c
}

var (
	errFailed  = &engine.PeerError{Err: errors.New("node failed")}
	errClosed  = engine.ErrClosed
	errGone    = errors.New("seed gone")
	errRemoved = &client.RemovedError{}
	errBroken  = errors.New("cannot be built")
	errMistake = errors.New("calls do not match")
	errLeft    = &engine.PeerError{Left: true}
	errOut     = &engine.RevokedError{Cause: wire.CauseRemoved}
	errDoubted = &engine.RevokedError{Cause: wire.CauseFailed}
)

// newFollower returns a Follower that builds communicators by build, or without errors
// if build is nil.
func newFollower(v *views, build func(ctx context.Context, epoch uint64) error) *Follower {
	return &Follower{
		Views: v, Timeout: 30 * time.Second, Grace: 2 * time.Second, LeaveGrace: 10 * time.Second,
		build: func(ctx context.Context, view membership.View, _ time.Duration) (*Comm, error) {
			if build == nil {
				return newComm(view.Epoch), nil
			}
			return newComm(view.Epoch), build(ctx, view.Epoch)
		},
	}
}

// A course is a sequence of events in a world, and the outcome of Next.
type course struct {
	make  func(ctx context.Context, epoch uint64) error // nil: builds succeed
	abort bool
	// quiesced is set if the epoch has ended with a reconfiguration.
	quiesced bool
	first    func(old *Comm, v *views)                            // before Next
	then     func(old *Comm, v *views, cancel context.CancelFunc) // during Next
	epoch    uint64
	errs     []error
	alone    bool // the error is not a LostError
	took     time.Duration
}

// callErrors are courses with an error of a call that ends the communicator.
func callErrors() map[string]course {
	return map[string]course{
		"call error": {then: func(old *Comm, _ *views, _ context.CancelFunc) {
			time.Sleep(time.Hour)
			old.stop(errMistake)
		}, errs: []error{errMistake}, alone: true, took: time.Hour + 2*time.Second},
		"call error, and a view arrives": {then: func(old *Comm, v *views, _ context.CancelFunc) {
			old.stop(errMistake)
			time.Sleep(time.Second)
			v.set(3, nil)
		}, epoch: 3, took: time.Second},
		"a node has left": {then: func(old *Comm, _ *views, _ context.CancelFunc) { old.stop(errLeft) },
			errs: []error{errLeft}, alone: true, took: 12 * time.Second},
		"a node has left, and the view arrives late": {then: func(old *Comm, v *views, _ context.CancelFunc) {
			old.stop(errLeft)
			time.Sleep(11 * time.Second)
			v.set(3, nil)
		}, epoch: 3, took: 11 * time.Second},
		"call error, without a seed": {then: func(old *Comm, v *views, _ context.CancelFunc) {
			v.set(1, errGone)
			time.Sleep(time.Hour)
			old.stop(errMistake)
		}, errs: []error{errMistake, errGone}, alone: true, took: time.Hour},
		"call error, and this node is removed": {then: func(old *Comm, v *views, _ context.CancelFunc) {
			old.stop(errMistake)
			time.Sleep(time.Second)
			v.set(1, errRemoved)
		}, errs: []error{errMistake, errRemoved}, took: time.Second},
		"other nodes say that this node is removed, and the seed says so late": {then: func(old *Comm, v *views, _ context.CancelFunc) {
			old.stop(errOut)
			time.Sleep(10 * time.Second)
			v.set(1, errRemoved)
		}, errs: []error{errOut, errRemoved}, took: 10 * time.Second},
		"other nodes have lost this one, and the view arrives late": {then: func(old *Comm, v *views, _ context.CancelFunc) {
			old.stop(errDoubted)
			time.Sleep(20 * time.Second)
			v.set(3, nil)
		}, epoch: 3, took: 20 * time.Second},
		"call error, and the context ends": {then: func(old *Comm, _ *views, cancel context.CancelFunc) {
			old.stop(errMistake)
			time.Sleep(time.Second)
			cancel()
		}, errs: []error{context.Canceled}, took: time.Second},
	}
}

// courses returns courses of a world with or without a new view.
func courses() map[string]course {
	return map[string]course{
		"a new view without a failure": {then: func(_ *Comm, v *views, _ context.CancelFunc) {
			time.Sleep(time.Hour)
			v.set(2, nil)
		}, epoch: 2, took: time.Hour},
		"a failure": {then: func(old *Comm, v *views, _ context.CancelFunc) {
			old.stop(errFailed)
			time.Sleep(time.Second)
			v.set(5, nil)
		}, epoch: 5, took: time.Second},
		"no view after a failure": {then: func(old *Comm, _ *views, _ context.CancelFunc) {
			time.Sleep(time.Hour)
			old.stop(errFailed)
		}, errs: []error{errFailed}, took: time.Hour + 30*time.Second},
		"the seed goes, and then a node": {then: func(old *Comm, v *views, _ context.CancelFunc) {
			v.set(1, errGone)
			time.Sleep(time.Hour)
			old.stop(errFailed)
		}, errs: []error{errGone, errFailed}, took: time.Hour},
		"the seed goes after a reconfiguration": {quiesced: true, then: func(_ *Comm, v *views, _ context.CancelFunc) {
			time.Sleep(time.Second)
			v.set(1, client.ErrSeedGone)
		}, errs: []error{client.ErrSeedGone}, took: time.Second},
		"this node is removed": {then: func(_ *Comm, v *views, _ context.CancelFunc) { v.set(1, errRemoved) },
			errs: []error{errRemoved}},
		"the communicator is closed": {then: func(old *Comm, v *views, _ context.CancelFunc) {
			old.stop(errClosed)
			time.Sleep(time.Hour)
			v.set(2, nil)
		}, epoch: 2, took: time.Hour},
		"the context ends": {then: func(_ *Comm, _ *views, cancel context.CancelFunc) {
			time.Sleep(time.Minute)
			cancel()
		}, errs: []error{context.Canceled}, took: time.Minute},
		"the context ends after a failure": {then: func(old *Comm, _ *views, cancel context.CancelFunc) {
			old.stop(errFailed)
			time.Sleep(time.Second)
			cancel()
		}, errs: []error{context.Canceled}, took: time.Second},
		"abort after a failure, and a view arrives": {abort: true, first: func(old *Comm, v *views) {
			old.stop(errFailed)
			v.set(2, nil)
		}, errs: []error{errFailed}},
		"abort after a failure, and nodes leave": {abort: true, first: func(_ *Comm, v *views) { v.set(2, nil) }, epoch: 2},
		"abort after a failure, and this node is removed": {abort: true, then: func(old *Comm, v *views, _ context.CancelFunc) {
			old.stop(errFailed)
			time.Sleep(time.Millisecond)
			v.set(1, errRemoved)
		}, errs: []error{errFailed, errRemoved}, took: time.Millisecond},
		"abort after a failure": {abort: true, then: func(old *Comm, _ *views, _ context.CancelFunc) { old.stop(errFailed) },
			errs: []error{errFailed}, took: NoticeTimeout},
	}
}

// obstacles are courses that delay the next communicator.
func obstacles() map[string]course {
	return map[string]course{
		"another node fails during the build": {
			make: func(_ context.Context, epoch uint64) error {
				if epoch < 4 {
					return fmt.Errorf("epoch %d: %w", epoch, errFailed)
				}
				return nil
			},
			then: func(old *Comm, v *views, _ context.CancelFunc) {
				old.stop(errFailed)
				for epoch := range uint64(3) {
					time.Sleep(time.Second)
					v.set(2+epoch, nil)
				}
			}, epoch: 4, took: 3 * time.Second},
		"a newer view during the build": {
			make: func(ctx context.Context, epoch uint64) error {
				if epoch == 2 {
					<-ctx.Done()
				}
				return ctx.Err()
			},
			then: func(old *Comm, v *views, _ context.CancelFunc) {
				old.stop(errFailed)
				v.set(2, nil)
				time.Sleep(time.Minute)
				v.set(3, nil)
			}, epoch: 3, took: time.Minute},
		"the world ends during the build": {
			make: func(ctx context.Context, epoch uint64) error {
				<-ctx.Done()
				return ctx.Err()
			},
			then: func(old *Comm, v *views, _ context.CancelFunc) {
				old.stop(errFailed)
				v.set(2, nil)
				time.Sleep(time.Minute)
				v.set(2, errRemoved)
			}, errs: []error{errRemoved}, took: time.Minute},
		"permanent build error": {make: func(context.Context, uint64) error { return errBroken },
			then: func(_ *Comm, v *views, _ context.CancelFunc) { v.set(2, nil) }, errs: []error{errBroken}},
	}
}

// Next returns the right communicator or error for each course, after the right time.
func TestNext(t *testing.T) {
	all := courses()
	maps.Copy(all, callErrors())
	maps.Copy(all, obstacles())
	for name, test := range all {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				v, old := newViews(), newComm(1)
				f := newFollower(v, test.make)
				f.Abort = test.abort
				if test.quiesced {
					f.Quiesce(1)
				}
				began := time.Now()
				if test.first != nil {
					test.first(old, v)
				}
				if test.then != nil {
					go test.then(old, v, cancel)
				}
				c, err := f.Next(ctx, old)
				if took := time.Since(began); took != test.took {
					t.Errorf("Next took %v, want %v", took, test.took)
				}
				if test.errs == nil && (err != nil || c.Epoch() != test.epoch) {
					t.Fatalf("got %v, %v, want epoch %d", c, err, test.epoch)
				}
				if _, lost := errors.AsType[*LostError](err); test.alone && lost {
					t.Errorf("got the LostError %v", err)
				}
				for _, want := range test.errs {
					if !errors.Is(err, want) {
						t.Errorf("got %v, want %v", err, want)
					}
				}
			})
		})
	}
}

// TestRecoveries: a communicator that replaces one after a failure is a recovery, and others are none.
func TestRecoveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newViews()
		f := newFollower(v, nil)
		for epoch, failure := range []error{errFailed, nil, errFailed} {
			if epoch == 2 {
				f.Quiesce(3)
			}
			old := newComm(uint64(epoch + 1))
			go func() {
				if failure != nil {
					old.stop(failure)
				}
				time.Sleep(3 * time.Second)
				v.set(uint64(epoch+2), nil)
			}()
			if _, err := f.Next(t.Context(), old); err != nil {
				t.Fatal(err)
			}
		}
		if n, took := f.Recoveries(); n != 1 || took != 3*time.Second {
			t.Errorf("%d recoveries in %v, want one in 3 s", n, took)
		}
	})
}

// From returns the communicator of its view, or of the next one if another node fails
// meanwhile.
func TestFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newViews()
		v.set(4, nil)
		f := newFollower(v, func(ctx context.Context, epoch uint64) error {
			if epoch == 4 {
				time.AfterFunc(time.Second, func() { v.set(5, nil) })
				return errFailed
			}
			return nil
		})
		c, err := f.From(t.Context(), membership.View{Epoch: 4})
		if err != nil || c.Epoch() != 5 {
			t.Errorf("got %+v, %v, want the communicator of epoch 5", c, err)
		}
	})
}

// Without waits for a view without the given nodes, and no longer than its timeout.
func TestWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newViews()
		f := newFollower(v, nil)
		old := newComm(1)
		go func() {
			time.Sleep(time.Second)
			v.set(2, nil, membership.NodeID{7})
			time.Sleep(time.Second)
			v.set(3, nil)
		}()
		c, err := f.Without(t.Context(), old, []membership.NodeID{{7}}, time.Minute)
		if err != nil || c.Epoch() != 3 {
			t.Errorf("got %+v, %v, want the communicator of epoch 3", c, err)
		}
		began := time.Now()
		if _, err := f.Without(t.Context(), c, nil, time.Minute); err == nil || time.Since(began) != time.Minute {
			t.Errorf("got error %v after %v, want one after a minute", err, time.Since(began))
		}
	})
}
