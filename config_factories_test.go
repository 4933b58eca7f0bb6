package nexar

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/transport"
)

// TestFactoryNotNamed: a transport of the program that a list of transports does not name is not used, and the node says so.
func TestFactoryNotNamed(t *testing.T) {
	factory := transport.Factory{Name: "own", Listen: func(context.Context, transport.Env) (transport.Transport, error) {
		return nil, errors.New("it is not used")
	}}
	for _, named := range []bool{true, false} {
		var log bytes.Buffer
		cfg := Config{Token: NewToken(), Factories: []transport.Factory{factory}, Log: slog.New(slog.NewTextHandler(&log, nil)), Transports: []string{"tcp"}}
		if named {
			cfg.Transports = append(cfg.Transports, "own")
		}
		c, err := cfg.node(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(c.Transports.Names, "own"); got != named {
			t.Errorf("transports %v, want own in it: %v", c.Transports.Names, named)
		}
		if said := strings.Contains(log.String(), "NEXAR_TRANSPORTS does not name it"); said == named {
			t.Errorf("with transports %v the log is %q", cfg.Transports, log.String())
		}
	}
}
