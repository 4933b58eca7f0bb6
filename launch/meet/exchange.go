package meet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/launch"
	"github.com/nexar-go/nexar/launch/internal/text"
)

// canExchange reports whether the processes can exchange values before they join.
func (p process) canExchange() bool { return p.HasPMI || p.Size == 1 || p.OneHost() && hasSockets }

// exchange makes the announcement of this process known, if it runs a seed, and returns those of all seeds. It waits for them until
// ctx ends. The caller releases its own announcement, also after an error.
func (p process) exchange(ctx context.Context, seed int, runs bool, own announcement, seeds int, decided func() bool) (all []announcement, release func(), err error) {
	release = func() {}
	if p.Size == 1 { // No process manager is needed.
		return []announcement{own}, release, nil
	}
	value, err := json.Marshal([]announcement{own})
	if err != nil {
		return nil, release, err
	}
	if p.HasPMI {
		all, err = p.exchangeOverPMI(ctx, seed, runs, string(value), seeds)
		return all, release, err
	}
	var known atomic.Pointer[[]byte] // for others: the announcement of this process, and then those of all seeds
	known.Store(&value)
	if runs {
		if release, err = p.serve(seed, func() []byte { return *known.Load() }, decided); err != nil {
			return nil, func() {}, err
		}
	}
	if all, err = p.collect(ctx, seeds); err != nil {
		return nil, release, err
	}
	if value, err := json.Marshal(all); err == nil {
		known.Store(&value)
	}
	return all, release, nil
}

// errUser is the error of a socket of another user.
var errUser = errors.New("the socket of this user's job belongs to another user")

// collect asks the processes that run seeds until it has the announcements of all. A process that has them tells them, so that others may have
// ended. A process may start late, be stopped, or end before it has answered and be started again: collect waits until ctx ends.
func (p process) collect(ctx context.Context, seeds int) ([]announcement, error) {
	var all []announcement // of the first seeds
	for {
		var missing error
		for seed := len(all); seed < seeds; seed++ {
			value, err := p.ask(ctx, seed)
			var told []announcement
			if err == nil {
				told, err = parse(value)
			} else if !errors.Is(err, errUser) {
				if missing == nil {
					missing = err
				}
				continue
			}
			switch {
			case err != nil:
				return nil, p.ofSeed(seed, err)
			case len(told) == seeds:
				return told, nil
			case len(told) > 1:
				return nil, p.ofSeed(seed, fmt.Errorf("%w: rank %d expects %d seeds, and this one %d: set NEXAR_LAUNCH_SEEDS to the same number on all ranks", launch.ErrLaunch, told[seed%len(told)].Rank, len(told), seeds))
			case seed == len(all):
				all = append(all, told[0])
			}
		}
		if len(all) == seeds {
			return all, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, p.ofSeed(len(all), fmt.Errorf("%w: %w", missing, context.Cause(ctx)))
		}
	}
}

// exchangeOverPMI leaves the process manager at once: some take the end of a process that has not left for a failure of all.
func (p process) exchangeOverPMI(ctx context.Context, seed int, runs bool, value string, seeds int) (all []announcement, err error) {
	key := func(seed int) string { return fmt.Sprintf("nexar-seed-%d", seed) }
	m, err := launch.OpenPMI(ctx, launch.Here())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if runs {
		if err := m.Put(ctx, key(seed), value); err != nil {
			return nil, err
		}
	}
	if err := m.Fence(ctx); err != nil {
		return nil, err
	}
	for seed := range seeds {
		value, err := m.Get(ctx, key(seed))
		var told []announcement
		if err == nil {
			told, err = parse(value)
		}
		if err != nil {
			return nil, p.ofSeed(seed, err)
		}
		all = append(all, told...)
	}
	return all, nil
}

// job names the job in errors.
func (p process) job() string { return cmp.Or(text.Plain(p.Job), "of "+p.Launcher) }

// ofSeed adds the job and the number of a seed to an error.
func (p process) ofSeed(seed int, err error) error {
	return fmt.Errorf("job %s: the address of seed %d: %w", p.job(), seed, err)
}

// parse reads the answer of the process of a seed: its announcement, or those of all seeds.
func parse(value string) (told []announcement, err error) {
	bad := func(a announcement) bool { return len(a.Seeds) == 0 && len(a.Failure) == 0 }
	if err := json.Unmarshal([]byte(value), &told); err != nil || len(told) == 0 || slices.ContainsFunc(told, bad) {
		return nil, fmt.Errorf("got %d bytes that are no announcement of nexar", len(value)) // They may contain a token.
	}
	return told, nil
}
