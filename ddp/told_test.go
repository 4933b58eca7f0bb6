package ddp_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/ddp"
	"github.com/nexar-go/nexar/nexartest"
)

// TestRunTells: a function of the job fails on one rank, and its node stays in the world. The others get the error, with its rank, and do not wait for ever.
func TestRunTells(t *testing.T) {
	errDisk := errors.New("the disk is full")
	for _, where := range []string{"Gradients", "Update", "World", "Complete", "Start"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := nexartest.New(t, 3)
				begin := time.Now()
				w.Start(func(ctx context.Context, node *nexar.Node) error {
					tr := new(trainee)
					job := tr.job(t, time.Second)
					rank := node.World().Rank()
					fail := func(at string) error {
						if rank == 1 && at == where {
							return errDisk
						}
						return nil
					}
					gradients, update := job.Gradients, job.Update
					job.Gradients = func(ctx context.Context, m *ddp.Model[float64], batch []int) error {
						return errors.Join(fail("Gradients"), gradients(ctx, m, batch))
					}
					job.Update = func(r ddp.Result) error { return errors.Join(fail("Update"), update(r)) }
					job.Start = func(context.Context, *nexar.Comm) (int64, error) { return 0, fail("Start") }
					job.World = func(context.Context, *nexar.Comm, int64) error { return fail("World") }
					job.Complete = func(context.Context, *nexar.Comm, int64) error { return fail("Complete") }
					err := ddp.Run(ctx, node, job)
					if rank == 1 {
						time.Sleep(time.Minute) // with the node
						return err
					}
					if waited := time.Since(begin); waited > 20*time.Second {
						t.Errorf("rank %d has waited for %v", rank, waited)
					}
					return err
				})
				for rank, err := range w.Wait() {
					told := errors.Is(err, nexar.ErrRevoked) && strings.Contains(err.Error(), "rank 1") && strings.Contains(err.Error(), "ddp.Run after") && strings.Contains(err.Error(), errDisk.Error())
					if rank == 1 && !errors.Is(err, errDisk) || rank != 1 && !told {
						t.Errorf("rank %d: %v, want %v of rank 1", rank, err, errDisk)
					}
				}
			})
		})
	}
}

// TestRunSurvivesHooks: a rank leaves while the others make a collective in Complete, on a communicator of their own, as a Saver has. They go on.
func TestRunSurvivesHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := nexartest.New(t, 3)
		errDisk := errors.New("the disk is full")
		w.Start(func(ctx context.Context, node *nexar.Node) error {
			tr := new(trainee)
			job := tr.job(t, time.Second)
			first, rank := node.World(), node.World().Rank()
			var own *nexar.Comm
			job.World = func(ctx context.Context, c *nexar.Comm, _ int64) (err error) {
				own, err = c.Dup(ctx)
				return err
			}
			job.Complete = func(ctx context.Context, c *nexar.Comm, steps int64) error {
				if steps == 3 && c == first && rank == 1 {
					return errDisk
				}
				return own.Barrier(ctx)
			}
			err := ddp.Run(ctx, node, job)
			if rank != 1 {
				tr.want(t, "a survivor")
			}
			return err
		})
		for rank, err := range w.Wait() {
			if rank == 1 && !errors.Is(err, errDisk) || rank != 1 && err != nil {
				t.Errorf("rank %d: %v, want an error of rank 1 alone", rank, err)
			}
		}
	})
}

// TestRunSamplers: ranks with different Samplers would leave out samples and use others twice.
func TestRunSamplers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := nexartest.New(t, 3)
		w.Start(func(ctx context.Context, node *nexar.Node) error {
			job := new(trainee).job(t, time.Second)
			if node.World().Rank() == 2 {
				job.Sampler = newSampler(t, elasticSamples, elasticBatch, 8)
			}
			return ddp.Run(ctx, node, job)
		})
		for rank, err := range w.Wait() {
			e, ok := errors.AsType[*ddp.DifferenceError](err)
			if !ok || e.What != "the Sampler" || !strings.Contains(err.Error(), "with seed 8 on rank 2") {
				t.Errorf("rank %d: %v, want a DifferenceError of the Sampler of rank 2", rank, err)
			}
		}
	})
}
