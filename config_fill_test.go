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

// TestRankOfOtherSeeds: the rank of the environment is one in the cluster of the seeds of the environment. Without these it is one
// in the cluster of the program.
func TestRankOfOtherSeeds(t *testing.T) {
	t.Setenv("NEXAR_RANK", "1")
	own := 5
	for _, test := range []struct {
		env  string
		cfg  Config
		want *int
	}{
		{"10.0.0.1,10.0.0.2:7000", Config{}, new(1)},
		{"10.0.0.1,10.0.0.2:7000", Config{Seeds: []string{"10.0.0.1:7946"}}, new(1)},
		{"10.0.0.1:7946,10.0.0.2:7000", Config{Seeds: []string{"10.0.0.3", "10.0.0.1"}}, new(1)},
		{"10.0.0.1,10.0.0.2:7000", Config{Seeds: []string{"10.0.0.2"}}, nil},
		{"10.0.0.1,10.0.0.2:7000", Config{Seeds: []string{"127.0.0.1:5000"}}, nil},
		{"10.0.0.1,10.0.0.2:7000", Config{Seeds: []string{"127.0.0.1:5000"}, Rank: &own}, &own},
		{"", Config{Seeds: []string{"127.0.0.1:5000"}}, new(1)},
	} {
		t.Setenv("NEXAR_SEEDS", test.env)
		cfg, err := test.cfg.fill()
		if err != nil || (cfg.Rank == nil) != (test.want == nil) || cfg.Rank != nil && *cfg.Rank != *test.want {
			t.Errorf("NEXAR_SEEDS=%q and %v: got the rank %v (%v), want %v", test.env, test.cfg.Seeds, cfg.Rank, err, test.want)
		}
	}
}

// TestPlainBulk: two variables of opposite meaning control the encryption of payloads. Both may be
// set if they agree. A contradiction is an error, also between a variable that asks for encryption
// and the program.
func TestPlainBulk(t *testing.T) {
	const encrypt, plain = "NEXAR_ENCRYPT_BULK_TRANSPORT", "NEXAR_PLAIN_BULK"
	for _, test := range []struct {
		plain, encrypt string
		program        bool
		want           bool
		err            string
	}{
		{"", "", false, false, ""},
		{"", "", true, true, ""},
		{"1", "", false, true, ""},
		{"0", "", false, false, ""},
		{"", "0", false, true, ""},
		{"", "1", false, false, ""},
		{"1", "0", false, true, ""},
		{"0", "1", false, false, ""},
		{"true", "false", true, true, ""},
		{"", "0", true, true, ""},
		{"1", "1", false, false, encrypt + `="1" contradicts ` + plain + `="1"`},
		{"0", "0", false, false, encrypt + `="0" contradicts ` + plain + `="0"`},
		{"1", "1", true, false, encrypt + `="1" contradicts ` + plain + `="1"`},
		{"", "1", true, false, encrypt + `="1": but the program sets PlainBulk`},
		{"0", "", true, false, plain + `="0": but the program sets PlainBulk`},
	} {
		t.Setenv(plain, test.plain)
		t.Setenv(encrypt, test.encrypt)
		cfg, err := Config{PlainBulk: test.program}.fill()
		switch {
		case test.err == "" && (err != nil || cfg.PlainBulk != test.want):
			t.Errorf("%+v: got %v, %v", test, cfg.PlainBulk, err)
		case test.err != "" && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%+v: error %v", test, err)
		}
	}
}

// TestSidecar: NEXAR_ENABLE_TCP_BULK_SIDECAR=0 disables TCP in any list of transports.
func TestSidecar(t *testing.T) {
	for _, test := range []struct{ list, sidecar, want string }{
		{"", "", "shm,tcp,quic"},
		{"", "1", "shm,tcp,quic"},
		{"", "0", "shm,quic"},
		{"", "false", "shm,quic"},
		{"tcp,shm", "0", "shm"},
		{"tcp", "0", "quic"},
		{"tcp", "true", "tcp"},
	} {
		t.Setenv("NEXAR_TRANSPORTS", test.list)
		t.Setenv(sidecarVariable, test.sidecar)
		cfg, err := Config{}.fill()
		if got := strings.Join(cfg.Transports, ","); err != nil || got != test.want {
			t.Errorf("%q and %q: got %q (%v), want %q", test.list, test.sidecar, got, err, test.want)
		}
		if cfg, _ = (Config{Transports: []string{"tcp"}}).fill(); len(cfg.Transports) != 1 || cfg.Transports[0] != "tcp" {
			t.Errorf("%q and %q changed the Transports of the program: %q", test.list, test.sidecar, cfg.Transports)
		}
	}
	t.Setenv(sidecarVariable, "perhaps")
	if _, err := ConfigFromEnv(); err == nil || !strings.Contains(err.Error(), sidecarVariable) {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}
