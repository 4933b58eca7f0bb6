package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/nexar-go/nexar"
)

// examineJoin checks whether a node could join at seeds, or at those of NEXAR_SEEDS if there are none.
func examineJoin(ctx context.Context, seeds []string) (list []Finding) {
	check, err := nexar.CheckJoin(ctx, nexar.Config{Seeds: seeds, Log: slog.New(slog.DiscardHandler)})
	add := func(s Status, fix, format string, args ...any) {
		list = append(list, Finding{About: "joining", Status: s, Text: fmt.Sprintf(format, args...), Fix: fix})
	}
	for _, s := range check.Seeds {
		over, instead := protocol(s.Transport), otherTransport(check.Seeds, s)
		switch {
		case s.Err == nil:
			add(OK, "", "the seed at %s answers over %s and has the token of this process", s.Addr, over)
		case errors.Is(s.Err, nexar.ErrToken):
			add(Fail, "set NEXAR_CLUSTER_TOKEN to the token of the seed", "the seed at %s, over %s: %v", s.Addr, over, s.Err)
		case errors.Is(s.Err, nexar.ErrIdentity):
			add(Fail, "correct the setting that the message names", "the seed at %s, over %s: %v", s.Addr, over, s.Err)
		case instead != "" && s.Transport == "quic":
			add(Warn, fmt.Sprintf("let UDP pass to %s in firewalls, or set NEXAR_TRANSPORTS=shm,tcp: nodes then do not try it", s.Addr),
				"UDP does not pass to the seed at %s: nodes use %s (%v)", s.Addr, instead, s.Err)
		case instead != "" && s.Transport == "tcp":
			add(Warn, fmt.Sprintf("let TCP pass to %s in firewalls: payloads are faster over it", s.Addr),
				"TCP does not pass to the seed at %s: nodes use %s (%v)", s.Addr, instead, s.Err)
		default: // not a failure: a node needs one seed over one transport
			add(Warn, fmt.Sprintf("start the seed, and open its port for %s in the firewall", over), "the seed at %s does not answer over %s: %v", s.Addr, over, s.Err)
		}
	}
	for _, addr := range untried(check.Seeds, "quic") {
		add(Note, "", "UDP to the seed at %s is not tried: NEXAR_TRANSPORTS is %s", addr, shown(os.Getenv("NEXAR_TRANSPORTS")))
	}
	for _, addr := range untried(check.Seeds, "tcp") {
		add(Note, "", "TCP to the seed at %s is not tried: NEXAR_TRANSPORTS is %s", addr, shown(os.Getenv("NEXAR_TRANSPORTS")))
	}
	if err != nil {
		add(Fail, "correct the setting that the message names", "Join would fail: %v", err)
		return list
	}
	add(OK, "", "Join would be admitted: %d of %d nodes have joined, and the seed sees this process at %s", check.Joined, check.World, check.Observed)
	return list
}

// protocol returns the name of a transport in findings.
func protocol(transport string) string {
	switch transport {
	case "quic":
		return "UDP"
	case "tcp":
		return "TCP"
	}
	return transport
}

// otherTransport returns the protocol of another transport over which the seed of a check has answered,
// or "".
func otherTransport(checks []nexar.SeedCheck, of nexar.SeedCheck) string {
	for _, s := range checks {
		if s.Addr == of.Addr && s.Transport != of.Transport && s.Err == nil {
			return protocol(s.Transport)
		}
	}
	return ""
}

// untried returns the addresses of the seeds that were not dialed over a transport.
func untried(checks []nexar.SeedCheck, transport string) (addrs []string) {
	for _, s := range checks {
		tried := slices.ContainsFunc(checks, func(o nexar.SeedCheck) bool { return o.Addr == s.Addr && o.Transport == transport })
		if !tried && !slices.Contains(addrs, s.Addr) {
			addrs = append(addrs, s.Addr)
		}
	}
	return addrs
}
