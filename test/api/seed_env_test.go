package api

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/transport"
)

// TestSeedEnvironment: the seed reads the settings of an elastic world from its SeedConfig, or
// else from the environment. Nodes report the mistakes in variables that a seed reports.
func TestSeedEnvironment(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		cfg  nexar.SeedConfig
		want string // in the error; empty if none is expected
	}{
		"fields":         {nil, nexar.SeedConfig{Elastic: true, ElasticMin: 1, ElasticMax: 2}, ""},
		"variables":      {map[string]string{"NEXAR_ELASTIC_ENABLED": "1", "NEXAR_ELASTIC_MAX_WORLD_SIZE": "8"}, nexar.SeedConfig{}, ""},
		"not a number":   {map[string]string{"NEXAR_ELASTIC_MAX_WORLD_SIZE": "many"}, nexar.SeedConfig{}, `NEXAR_ELASTIC_MAX_WORLD_SIZE="many": not a whole number`},
		"not a switch":   {map[string]string{"NEXAR_ELASTIC_ENABLED": "maybe"}, nexar.SeedConfig{}, "NEXAR_ELASTIC_ENABLED"},
		"negative":       {nil, nexar.SeedConfig{ElasticMin: -1}, "NEXAR_ELASTIC_MIN_WORLD_SIZE=-1: negative"},
		"minimum":        {nil, nexar.SeedConfig{ElasticMin: 3, ElasticMax: 2}, "NEXAR_ELASTIC_MIN_WORLD_SIZE=3: must be at most NEXAR_ELASTIC_MAX_WORLD_SIZE (2)"},
		"minimum of two": {map[string]string{"NEXAR_ELASTIC_MAX_WORLD_SIZE": "4"}, nexar.SeedConfig{ElasticMin: 5}, "must be at most NEXAR_ELASTIC_MAX_WORLD_SIZE (4)"},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range test.env {
				t.Setenv(variable, value)
			}
			test.cfg.Listen, test.cfg.World, test.cfg.AllowWeakToken = "127.0.0.1:0", 1, true
			seed, err := nexar.StartSeed(t.Context(), test.cfg)
			if err == nil {
				defer seed.Close()
			}
			if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, nexar.ErrConfig) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			malformed := test.want != "" && test.cfg.ElasticMin == 0
			if _, err := nexar.ConfigFromEnv(); malformed != (err != nil) {
				t.Errorf("ConfigFromEnv: error %v; expected one: %t", err, malformed)
			}
			if _, err := nexar.Join(t.Context(), nexar.Config{Seeds: []string{"127.0.0.1:1"}, FormTimeout: time.Millisecond}); malformed != errors.Is(err, nexar.ErrConfig) {
				t.Errorf("Join: error %v; expected ErrConfig: %t", err, malformed)
			}
		})
	}
}

// TestSeedLog: without SeedConfig.Log, warnings of a seed go to slog.Default, and NEXAR_LOG=off silences
// them, as for nodes.
func TestSeedLog(t *testing.T) {
	var byDefault, given testlog.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&byDefault, nil)))
	for _, test := range []struct {
		name, level string
		log         *slog.Logger
		want        *testlog.Buffer // gets the warning; nil if no log does
	}{
		{"no log", "", nil, &byDefault},
		{"no log, NEXAR_LOG=off", "off", nil, nil},
		{"a log", "off", slog.New(slog.NewTextHandler(&given, nil)), &given},
	} {
		t.Setenv("NEXAR_LOG", test.level)
		lengths := map[*testlog.Buffer]int{&byDefault: len(byDefault.String()), &given: len(given.String())}
		seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, Token: nexar.NewToken(), Log: test.log})
		if err != nil {
			t.Fatal(err)
		}
		_, err = nexar.Join(t.Context(), nexar.Config{Seeds: []string{seed.Addr()}, Token: nexar.NewToken(), Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
		if !errors.Is(err, nexar.ErrToken) {
			t.Errorf("%s: Join with another token: %v, want ErrToken", test.name, err)
		}
		if err := seed.Close(); err != nil {
			t.Error(err)
		}
		for log, n := range lengths {
			warned := strings.Contains(log.String()[n:], `level=WARN msg="node refused"`)
			if want := log == test.want; warned != want {
				t.Errorf("%s: a log has the warning: %v, want %v: %q", test.name, warned, want, log.String()[n:])
			}
		}
	}
}

// TestSeedHeartbeatTimeout: the transports of a seed get the time in NEXAR_HEARTBEAT_TIMEOUT_SECS, as those of nodes do.
func TestSeedHeartbeatTimeout(t *testing.T) {
	t.Setenv("NEXAR_HEARTBEAT_INTERVAL_SECS", "0.1")
	t.Setenv("NEXAR_HEARTBEAT_TIMEOUT_SECS", "0.2")
	var got time.Duration
	factory := transport.Factory{Name: "own", Listen: func(_ context.Context, env transport.Env) (transport.Transport, error) {
		got = env.PeerTimeout
		return nil, errors.New("it is not used")
	}}
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{
		Listen: "127.0.0.1:0", World: 1, AllowWeakToken: true, Factories: []transport.Factory{factory},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	if want := 200 * time.Millisecond; got != want {
		t.Errorf("PeerTimeout is %v, want %v", got, want)
	}
}
