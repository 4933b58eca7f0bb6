package nexar

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// A setting is what a variable may and may not be.
type setting struct {
	good      string
	want      any
	malformed []string
	secret    bool // the value is in no error
}

// settings are those of all fields of Config that have a variable.
func settings() map[string]setting {
	second := func(malformed ...string) setting {
		malformed = append(malformed, "soon", "1 minute", "NaN", "1e300", "-1e300", "0x", "5S")
		return setting{good: "1.5", want: 1500 * time.Millisecond, malformed: malformed}
	}
	rank := 3
	return map[string]setting{
		"NEXAR_SEEDS": {
			good: "a.example:7946,[fd00::1]:7946", want: []string{"a.example:7946", "[fd00::1]:7946"},
			malformed: []string{"localhost", "10.0.0.1:", "10.0.0.1:0", ":7946", "10.0.0.1:99999", "10.0.0.1:x", "fd00::1:7946", "http://a.example:7946", "one two:7946"},
		},
		"NEXAR_CLUSTER_TOKEN": {
			good: "abcd-efgh", want: "abcd-efgh", secret: true,
			malformed: []string{"two words", "a\nline", "bell\a", strings.Repeat("x", 2000), "\xff\xfe"},
		},
		"NEXAR_LISTEN":     {good: "10.0.0.1:7946", want: "10.0.0.1:7946", malformed: []string{"7946", "10.0.0.1", ":99999", ":x", "a:b:1", "one two:1"}},
		"NEXAR_ADVERTISE":  {good: "fd00::1", want: "fd00::1", malformed: []string{"10.0.0.1:99999", "10.0.0.1:x", "a:b:c", "one two", "http://a.example"}},
		"NEXAR_TRANSPORTS": {good: "tcp,shm", want: []string{"tcp", "shm"}, malformed: []string{"udp", "shm,,tcp", "shm;tcp", "QUIC"}},
		"NEXAR_ALGORITHMS": {
			good: "all_reduce=ring/4,broadcast=chain", want: []string{"all_reduce=ring/4", "broadcast=chain"},
			malformed: []string{"ring", "all_reduce=", "all_reduce=quick", "reduce_all=ring", "all_reduce=ring/0", "all_reduce=ring/x", "scan=flat,scan=flat"},
		},
		"NEXAR_PLAIN_BULK":                     {good: "1", want: true, malformed: []string{"2", "maybe", "plain"}},
		"NEXAR_RPC_TIMEOUT_SECS":               {good: "2.5", want: 2500 * time.Millisecond, malformed: []string{"soon", "1h30"}},
		"NEXAR_RPC_IN_FLIGHT":                  {good: "7", want: 7, malformed: []string{"-1", "many", "262145"}},
		"NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES": {good: "1000", want: 1000, malformed: []string{"1GiB", "much"}},
		"NEXAR_BUCKET_BYTES":                   {good: "1048576", want: 1 << 20, malformed: []string{"-1", "1MiB", "many"}},
		"NEXAR_DETERMINISTIC":                  {good: "true", want: true, malformed: []string{"2", "maybe", "yes!"}},
		"NEXAR_RANK":                           {good: "3", want: &rank, malformed: []string{"-1", "one", "1.5", "0x10", "99999999999999999999"}},
		"NEXAR_MEMORY":                         {good: "inference", want: "inference", malformed: []string{"lots", "Training"}},

		"NEXAR_FORM_TIMEOUT_SECS":       second(),
		"NEXAR_COLLECTIVE_TIMEOUT_SECS": second(),
		"NEXAR_BARRIER_TIMEOUT_SECS":    second(),
		"NEXAR_HEARTBEAT_INTERVAL_SECS": second(),
		"NEXAR_HEARTBEAT_TIMEOUT_SECS":  second("-3s"),
	}
}

// fields are the variables of Config with the fields they set.
func fields() map[string]reflect.StructField {
	all := make(map[string]reflect.StructField)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if name := f.Tag.Get("env"); name != "-" {
			all[name] = f
		}
	}
	return all
}

// noEnv takes the variables of nexar out of the environment for a test.
func noEnv(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "NEXAR_") {
			t.Setenv(name, "")
		}
	}
}

func TestConfigFromEnv(t *testing.T) {
	for name, field := range fields() {
		s, ok := settings()[name]
		if !ok || s.good == "" || len(s.malformed) == 0 {
			t.Errorf("field %s: this test does not know what %q may be", field.Name, name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			noEnv(t)
			t.Setenv(name, s.good)
			cfg, err := ConfigFromEnv()
			if err != nil {
				t.Fatal(err)
			}
			if got := reflect.ValueOf(cfg).FieldByIndex(field.Index).Interface(); !reflect.DeepEqual(got, s.want) {
				t.Errorf("%s=%s makes %s = %v, want %v", name, s.good, field.Name, got, s.want)
			}
		})
	}
}

func TestConfigMalformed(t *testing.T) {
	for name := range fields() {
		s := settings()[name]
		for _, value := range s.malformed {
			t.Run(name+"="+value[:min(len(value), 20)], func(t *testing.T) { refuses(t, name, value, s.secret) })
		}
	}
	for _, value := range []string{"loud", "7up", "info,debug"} {
		t.Run("NEXAR_LOG="+value, func(t *testing.T) { refuses(t, "NEXAR_LOG", value, false) })
	}
}

// localReads are the variables that concern ranks within one process.
var localReads = []string{"NEXAR_COLLECTIVE_TIMEOUT_SECS", "NEXAR_BARRIER_TIMEOUT_SECS", "NEXAR_MEMORY", "NEXAR_ALGORITHMS", "NEXAR_LOG",
	"NEXAR_DETERMINISTIC", "NEXAR_BUCKET_BYTES", "NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES", "NEXAR_RPC_TIMEOUT_SECS", "NEXAR_RPC_IN_FLIGHT"}

// refuses wants everything that reads the variable to fail at once, with an
// error that names it and its value, and everything else to work.
func refuses(t *testing.T, name, value string, secret bool) {
	t.Helper()
	noEnv(t)
	t.Setenv(name, value)
	_, fromEnv := ConfigFromEnv()
	_, fromJoin := Join(t.Context(), Config{FormTimeout: 100 * time.Millisecond, Seeds: seedsUnless(name)})
	comms, fromLocal := Local(t.Context(), 1, Config{})
	for _, c := range comms {
		c.Close()
	}
	seed, fromSeed := StartSeed(t.Context(), SeedConfig{Listen: "127.0.0.1:0", World: 1})
	if fromSeed == nil {
		seed.Close()
	}
	reads := map[string]bool{
		"ConfigFromEnv": true, "Join": true, "Local": slices.Contains(localReads, name), "StartSeed": name == "NEXAR_CLUSTER_TOKEN",
	}
	for who, err := range map[string]error{"ConfigFromEnv": fromEnv, "Join": fromJoin, "Local": fromLocal, "StartSeed": fromSeed} {
		switch {
		case !reads[who]:
			if err != nil {
				t.Errorf("%s, which does not concern itself with %s: error %v", who, name, err)
			}
		case !errors.Is(err, ErrConfig):
			t.Errorf("%s: error %v, want %v", who, err, ErrConfig)
		case !strings.Contains(err.Error(), name):
			t.Errorf("%s: the error does not name %s: %v", who, name, err)
		case secret == strings.Contains(err.Error(), value):
			t.Errorf("%s: whether the error has the value %q is %t: %v", who, value, secret, err)
		}
	}
}

// seedsUnless are seeds that nobody reaches, or none if they are what is to be
// read.
func seedsUnless(name string) []string {
	if name == "NEXAR_SEEDS" {
		return nil
	}
	return []string{"127.0.0.1:1"}
}

func TestConfigTimes(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"2": 2 * time.Second, "0.25": 250 * time.Millisecond, "1e3": 1000 * time.Second,
		"250ms": 250 * time.Millisecond, "1m30s": 90 * time.Second, "-1": -time.Second, "0": 0, "": 0,
	} {
		noEnv(t)
		t.Setenv("NEXAR_BARRIER_TIMEOUT_SECS", value)
		if cfg, err := ConfigFromEnv(); err != nil || cfg.BarrierTimeout != want {
			t.Errorf("%q: %v, %v, want %v", value, cfg.BarrierTimeout, err, want)
		}
	}
}

func TestConfigLog(t *testing.T) {
	for value, want := range map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "WARN": slog.LevelWarn, "error": slog.LevelError,
	} {
		noEnv(t)
		t.Setenv("NEXAR_LOG", value)
		cfg, err := ConfigFromEnv()
		if err != nil || cfg.Log == nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		if !cfg.Log.Enabled(t.Context(), want) || cfg.Log.Enabled(t.Context(), want-1) {
			t.Errorf("%s: the log does not begin at %v", value, want)
		}
	}
}

// Ranks within one process mind no setting that is of no use to them.
func TestLocalTakesWhatItNeeds(t *testing.T) {
	noEnv(t)
	rank := -1
	comms, err := Local(t.Context(), 1, Config{Seeds: []string{"nonsense"}, Listen: "nonsense", Rank: &rank, HeartbeatTimeout: -1, Token: "two words"})
	if err != nil {
		t.Fatal(err)
	}
	comms[0].Close()
	for _, cfg := range []Config{{Memory: "lots"}} {
		if _, err := Local(t.Context(), 1, cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: error %v, want %v", cfg, err, ErrConfig)
		}
	}
}

// What a program says itself counts more than the environment, and this more
// than the defaults.
func TestConfigFill(t *testing.T) {
	noEnv(t)
	t.Setenv("NEXAR_LISTEN", "10.0.0.1:1")
	t.Setenv("NEXAR_BARRIER_TIMEOUT_SECS", "7")
	cfg, err := Config{Listen: "10.0.0.2:2"}.fill()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Listen != "10.0.0.2:2" || cfg.BarrierTimeout != 7*time.Second || cfg.CollectiveTimeout != defaultTimeout {
		t.Errorf("Listen %s, BarrierTimeout %v, CollectiveTimeout %v", cfg.Listen, cfg.BarrierTimeout, cfg.CollectiveTimeout)
	}
	for _, cfg := range []Config{
		{HeartbeatInterval: time.Second, HeartbeatTimeout: time.Second},
		{HeartbeatInterval: time.Minute},
		{Seeds: []string{"a.example"}},
		{Listen: "a.example"},
		{Memory: "lots"},
		{Token: "two words"},
	} {
		if _, err := cfg.fill(); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: error %v, want %v", cfg, err, ErrConfig)
		}
	}
}

// A node without a seed is told how to name one, and an address without a port
// where one could come from.
func TestJoinNeeds(t *testing.T) {
	noEnv(t)
	for name, test := range map[string]struct {
		cfg  Config
		want string
	}{
		"seed": {Config{}, "NEXAR_SEEDS"},
		"port": {Config{Seeds: []string{"127.0.0.1:1"}, Advertise: "10.0.0.1"}, "NEXAR_LISTEN"},
	} {
		_, err := Join(context.Background(), test.cfg)
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one that names %s", name, err, test.want)
		}
	}
}
