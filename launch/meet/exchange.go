package meet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/nexar-go/nexar/launch"
	"github.com/nexar-go/nexar/launch/internal/text"
)

// canExchange reports whether the processes can exchange values before they join.
func (p process) canExchange() bool { return p.HasPMI || p.Size == 1 || p.OneHost() && hasSockets }

// exchange makes the announcement of this process known, if it runs a seed, and returns those of all seeds. It waits for them until
// ctx ends. The caller releases its own announcement, also after an error.
func (p process) exchange(ctx context.Context, seed int, runs bool, own announcement, seeds int, decided func() bool) (all []announcement, release func(), err error) {
	value, err := json.Marshal(own)
	if err != nil {
		return nil, func() {}, err
	}
	if p.HasPMI {
		all, err = p.exchangeOverPMI(ctx, seed, runs, string(value), seeds)
		return all, func() {}, err
	}
	release = func() {}
	if p.Size == 1 {
		return []announcement{own}, release, nil
	}
	if runs {
		if release, err = p.serve(seed, value, decided); err != nil {
			return nil, func() {}, err
		}
	}
	all, err = p.announcements(seeds, func(seed int) (string, error) { return p.fetch(ctx, seed) })
	return all, release, err
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
	return p.announcements(seeds, func(seed int) (string, error) { return m.Get(ctx, key(seed)) })
}

// job names the job in errors.
func (p process) job() string { return cmp.Or(text.Plain(p.Job), "of "+p.Launcher) }

// announcements reads the announcement of each seed.
func (p process) announcements(seeds int, read func(seed int) (string, error)) (all []announcement, err error) {
	for seed := range seeds {
		text, err := read(seed)
		if err != nil {
			return nil, fmt.Errorf("job %s: the address of seed %d: %w", p.job(), seed, err)
		}
		var a announcement
		if err := json.Unmarshal([]byte(text), &a); err != nil || len(a.Seeds) == 0 && len(a.Failure) == 0 {
			return nil, fmt.Errorf("job %s: the address of seed %d: got %d bytes that are no announcement of nexar", p.job(), seed, len(text)) // They may contain a token.
		}
		all = append(all, a)
	}
	return all, nil
}
