package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nexar-go/nexar"
)

// examineJoin checks whether a node could join at seeds, or at those of NEXAR_SEEDS if there are none.
func examineJoin(ctx context.Context, seeds []string) (list []Finding) {
	check, err := nexar.CheckJoin(ctx, nexar.Config{Seeds: seeds, Log: slog.New(slog.DiscardHandler)})
	add := func(s Status, fix, format string, args ...any) {
		list = append(list, Finding{About: "joining", Status: s, Text: fmt.Sprintf(format, args...), Fix: fix})
	}
	for _, s := range check.Seeds {
		over := map[string]string{"quic": "UDP", "tcp": "TCP"}[s.Transport]
		if over == "" {
			over = s.Transport
		}
		switch {
		case s.Err == nil:
			add(OK, "", "the seed at %s answers over %s and has the token of this process", s.Addr, over)
		case errors.Is(s.Err, nexar.ErrToken):
			add(Fail, "set NEXAR_CLUSTER_TOKEN to the token of the seed", "the seed at %s, over %s: %v", s.Addr, over, s.Err)
		case errors.Is(s.Err, nexar.ErrIdentity):
			add(Fail, "correct the setting that the message names", "the seed at %s, over %s: %v", s.Addr, over, s.Err)
		default: // not a failure: a node needs one seed over one transport
			add(Warn, fmt.Sprintf("start the seed, and open its port for %s in the firewall", over), "the seed at %s does not answer over %s: %v", s.Addr, over, s.Err)
		}
	}
	if err != nil {
		add(Fail, "correct the setting that the message names", "Join would fail: %v", err)
		return list
	}
	add(OK, "", "Join would be admitted: %d of %d nodes have joined, and the seed sees this process at %s", check.Joined, check.World, check.Observed)
	return list
}
