package ddp_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/checkpoint"
	"github.com/nexar-go/nexar/ddp"
	"github.com/nexar-go/nexar/nexartest"
)

const (
	elasticSamples, elasticBatch = 64, 16 // powers of 2, so that all means are exact
	elasticEpochs                = 12
)

// A trainee is one node of an elastic training. Its parameter counts how often each sample was used, and its state how often it was updated.
type trainee struct {
	used    []float64
	updates []int64
	steps   int64 // complete ones
	joined  []int64
	ended   bool
}

func (tr *trainee) job(t *testing.T, pause time.Duration) *ddp.Job[float64] {
	tr.used, tr.updates = make([]float64, elasticSamples), make([]int64, 1)
	grad := make([]float64, elasticSamples)
	return &ddp.Job[float64]{
		Params:  []ddp.Param[float64]{{Name: "used", Data: tr.used, Grad: grad}},
		State:   []any{tr.updates},
		Sampler: newSampler(t, elasticSamples, elasticBatch, 7),
		Gradients: func(_ context.Context, m *ddp.Model[float64], batch []int) error {
			clear(grad)
			for _, i := range batch {
				grad[i] = 1 / float64(len(batch)) // the mean over the samples of this rank
			}
			time.Sleep(pause)
			m.Ready(0)
			return nil
		},
		Update: func(r ddp.Result) error {
			for i, g := range grad {
				tr.used[i] += g * float64(r.Samples)
			}
			tr.updates[0]++
			return nil
		},
		Until: func(steps int64, next ddp.Position) bool {
			tr.steps = steps
			return next.Epoch == elasticEpochs
		},
		World: func(_ context.Context, _ *nexar.Comm, steps int64) error {
			tr.joined = append(tr.joined, steps)
			return nil
		},
	}
}

// want fails unless every sample was used once in each epoch.
func (tr *trainee) want(t *testing.T, who string) {
	t.Helper()
	const steps = elasticEpochs * elasticSamples / elasticBatch
	for i, n := range tr.used {
		if d := n - elasticEpochs; d > 1e-9 || d < -1e-9 {
			t.Errorf("%s: sample %d was used %v times in %d epochs", who, i, n, elasticEpochs)
		}
	}
	if tr.steps != steps || tr.updates[0] != steps {
		t.Errorf("%s: %d steps and %d updates, want %d", who, tr.steps, tr.updates[0], steps)
	}
}

// TestRun: nodes die, one alone and two at once, others join, one leaves: no step is lost or repeated, and all nodes end with the same bits.
func TestRun(t *testing.T) {
	for random := range uint64(5) {
		t.Run(fmt.Sprint(random), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testRun(t, random) })
		})
	}
}

func testRun(t *testing.T, random uint64) {
	w := nexartest.Cluster{Random: random + 1}.New(t, 5)
	var mu sync.Mutex
	var all []*trainee
	w.Start(func(ctx context.Context, node *nexar.Node) error {
		tr := new(trainee)
		job := tr.job(t, time.Second)
		mu.Lock()
		all = append(all, tr)
		mu.Unlock()
		err := ddp.Run(ctx, node, job)
		tr.ended = err == nil
		return err
	})
	some := func(most time.Duration) time.Duration { return time.Duration(w.Rand.Int64N(int64(most))) }
	time.Sleep(2*time.Second + some(2*time.Second))
	w.Kill(3)
	time.Sleep(some(20 * time.Second))
	w.Add()
	time.Sleep(5*time.Second + some(5*time.Second))
	w.Kill(0) // the rank that gave its parameters to all
	w.Kill(2)
	time.Sleep(some(10 * time.Second))
	w.Add()
	for i, err := range w.Wait() {
		if err != nil && !errors.Is(err, nexartest.ErrKilled) {
			t.Errorf("node %d: %v", i, err)
		}
	}
	all = slices.DeleteFunc(all, func(tr *trainee) bool { return !tr.ended })
	if len(all) != 4 {
		t.Fatalf("%d nodes have ended the training, want the 2 that lived from the beginning and 2 that joined", len(all))
	}
	for _, tr := range all {
		who := fmt.Sprintf("the node that began in worlds after steps %v", tr.joined)
		tr.want(t, who)
		if !slices.Equal(tr.used, all[0].used) {
			t.Errorf("%s has other bits than the first one", who)
		}
	}
}

// TestRunEnds: an error of the program ends the training of its node, and the others go on.
func TestRunEnds(t *testing.T) {
	for _, where := range []string{"Gradients", "Update"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				errDisk := errors.New("the disk is full")
				w := nexartest.New(t, 3)
				w.Start(func(ctx context.Context, node *nexar.Node) error {
					tr := new(trainee)
					job := tr.job(t, time.Second)
					rank := node.World().Rank()
					fail := func() error {
						if rank == 1 && tr.steps == 3 {
							return errDisk
						}
						return nil
					}
					gradients, update := job.Gradients, job.Update
					job.Gradients = func(ctx context.Context, m *ddp.Model[float64], batch []int) error {
						if err := fail(); err != nil && where == "Gradients" {
							return err
						}
						return gradients(ctx, m, batch)
					}
					job.Update = func(r ddp.Result) error {
						if err := fail(); err != nil && where == "Update" {
							return err
						}
						return update(r)
					}
					err := ddp.Run(ctx, node, job)
					if rank != 1 {
						tr.want(t, fmt.Sprint("rank ", rank))
					}
					return err
				})
				for rank, err := range w.Wait() {
					if rank == 1 && !errors.Is(err, errDisk) || rank != 1 && err != nil {
						t.Errorf("rank %d: %v, want an error of rank 1", rank, err)
					}
				}
			})
		})
	}
}

// TestCheckpoint: a job ends in the middle, and another one goes on from the checkpoint, with fewer ranks at first.
func TestCheckpoint(t *testing.T) {
	dir := t.TempDir()
	for number, ranks := range []int{4, 3} {
		synctest.Test(t, func(t *testing.T) {
			w := nexartest.New(t, ranks)
			w.Start(func(ctx context.Context, node *nexar.Node) error {
				tr := new(trainee)
				job := tr.job(t, time.Second)
				var saver *checkpoint.Saver
				var at ddp.Position
				items := []checkpoint.Item{checkpoint.Replicated("used", tr.used), checkpoint.Replicated("updates", tr.updates), checkpoint.Value("at", &at)}
				open := func(ctx context.Context, c *nexar.Comm) (err error) {
					if saver != nil {
						saver.Close() // of the world before: its last checkpoint may have failed
					}
					saver, err = checkpoint.New(ctx, c, dir, checkpoint.Config{})
					return err
				}
				job.Start = func(ctx context.Context, c *nexar.Comm) (int64, error) {
					if err := open(ctx, c); err != nil {
						return 0, err
					}
					step, err := saver.Load(ctx, items...)
					if err == nil && step >= 0 {
						job.Sampler.Seek(at)
					}
					return max(step, 0), err
				}
				world := job.World
				job.World = func(ctx context.Context, c *nexar.Comm, steps int64) error {
					return errors.Join(world(ctx, c, steps), open(ctx, c))
				}
				job.Complete = func(ctx context.Context, _ *nexar.Comm, steps int64) error {
					if at = job.Sampler.Position(); steps%5 == 0 {
						return saver.Start(ctx, steps, items...)
					}
					return nil
				}
				if until := job.Until; number == 0 {
					job.Until = func(steps int64, next ddp.Position) bool { return until(steps, next) || steps == 17 }
				}
				err := ddp.Run(ctx, node, job)
				if err == nil && number == 1 {
					tr.want(t, fmt.Sprintf("the node that began with steps %v", tr.joined))
					if tr.joined[0] < 15 {
						t.Errorf("a node began with step %d, want the last checkpoint, of 15 steps", tr.joined[0])
					}
				}
				return errors.Join(err, saver.Close())
			})
			if number == 1 {
				time.Sleep(5 * time.Second)
				w.Add()
			}
			must(t, errors.Join(w.Wait()...))
		})
	}
}
