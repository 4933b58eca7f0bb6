package nexar

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/settings"
	"github.com/nexar-go/nexar/internal/testlog"
)

// A setting has valid and invalid values of a variable.
type setting struct {
	good      string
	want      any
	malformed []string
	secret    bool // errors must not contain the value
}

// samples returns a setting for each variable of Config except NEXAR_LOG: loggers cannot be
// compared, and have their own test.
func samples() map[string]setting {
	second := func(malformed ...string) setting {
		malformed = append(malformed, "soon", "1 minute", "NaN", "1e300", "-1e300", "0x", "5S", "1e-12")
		return setting{good: "1.5", want: 1500 * time.Millisecond, malformed: malformed}
	}
	number := func(good int, malformed ...string) setting {
		return setting{good: strconv.Itoa(good), want: good, malformed: append(malformed, "-1", "many", "1.5", "99999999999999999999")}
	}
	onOff := setting{good: "1", want: true, malformed: []string{"2", "maybe", "yes!"}}
	vast := strconv.Itoa(math.MaxInt)
	rank := 3
	return map[string]setting{
		"NEXAR_SEEDS": {
			good: "a.example:7946,[fd00::1]:7946", want: []string{"a.example:7946", "[fd00::1]:7946"},
			malformed: []string{"localhost:", "10.0.0.1:", "10.0.0.1:0", ":7946", "10.0.0.1:99999", "10.0.0.1:x", "fd00::1:7946", "http://a.example:7946", "one two:7946"},
		},
		"NEXAR_CLUSTER_TOKEN": {
			good: sampleToken, want: sampleToken, secret: true,
			malformed: []string{"two words", "a\nline", "bell\a", strings.Repeat("x", 2000), "\xff\xfe"},
		},
		"NEXAR_CLUSTER_TOKEN_FILE":     {malformed: []string{"/no/such/directory/token", "."}},
		"NEXAR_CERTIFICATE_GRACE_SECS": second(),
		"NEXAR_ALLOW_WEAK_TOKEN":       {good: "1", want: true, malformed: []string{"no", "2"}},
		"NEXAR_CA_FILE":                {malformed: []string{"/no/such/directory/ca.pem", ".", "config_test.go"}},

		"NEXAR_LISTEN":              {good: "10.0.0.1:7946", want: "10.0.0.1:7946", malformed: []string{"7946", "10.0.0.1", ":99999", ":x", "a:b:1", "one two:1"}},
		"NEXAR_ADVERTISE_UNCHECKED": {good: "1", want: true, malformed: []string{"no", "2"}},
		"NEXAR_ADVERTISE":           {good: "fd00::1", want: "fd00::1", malformed: []string{"10.0.0.1:99999", "10.0.0.1:x", "a:b:c", "one two", "http://a.example"}},
		"NEXAR_TRANSPORTS":          {good: "tcp,shm", want: []string{"tcp", "shm"}, malformed: []string{"shm,,tcp", "shm;tcp", "QUIC"}},
		"NEXAR_TOPOLOGY": {
			good: "k_regular:4", want: "k_regular:4",
			malformed: []string{"ring", "fully", "k-regular", "k-regular:", "k-regular:0", "k-regular:1", "k-regular:-2", "k-regular:x", "hypercube:3", "full:2"},
		},
		"NEXAR_LINKS": {good: "eager", want: "eager", malformed: []string{"lazy", "demanding", "eager,demand"}},

		"NEXAR_LAUNCHER":     {good: "slurm", want: "slurm", malformed: []string{"srun", "slurm,pmi"}},
		"NEXAR_LAUNCH_SEEDS": {good: "3", want: 3, malformed: []string{"-1", "6", "x"}},
		"NEXAR_ALGORITHMS": {
			good: "all_reduce=ring/4,broadcast=chain", want: []string{"all_reduce=ring/4", "broadcast=chain"},
			malformed: []string{"ring", "all_reduce=", "all_reduce=quick", "reduce_all=ring", "all_reduce=ring/0", "all_reduce=ring/x", "scan=flat,scan=flat"},
		},
		"NEXAR_PLAIN_BULK":              onOff,
		"NEXAR_SPARE":                   onOff,
		"NEXAR_LEAVE_ON_SIGTERM":        onOff,
		"NEXAR_ENCRYPT_BULK_TRANSPORT":  {good: "0", want: true, malformed: []string{"2", "maybe", "tls"}},
		"NEXAR_ENABLE_TCP_BULK_SIDECAR": {good: "0", want: []string{"shm", "quic"}, malformed: []string{"2", "maybe", "tcp"}},
		"NEXAR_DETERMINISTIC":           onOff,

		"NEXAR_RPC_IN_FLIGHT":                  number(7, "262145"),
		"NEXAR_BUCKET_BYTES":                   number(1<<20, "1MiB", vast),
		"NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES": {good: "1000", want: 1000, malformed: []string{"1GiB", "much", "1e9", vast}},
		"NEXAR_LARGE_MSG_BYTES":                number(1<<24, "16MiB", vast),
		"NEXAR_PIPELINE_SEGMENT_BYTES":         number(1<<16, "64KiB", vast),
		"NEXAR_RING_MAX_WORLD":                 number(16),

		"NEXAR_RECOVERY_POLICY": {good: "manual", want: Manual, malformed: []string{"never", "manually", "auto,manual", "1"}},

		"NEXAR_RANK":         {good: "3", want: &rank, malformed: []string{"-1", "one", "1.5", "0x10", "99999999999999999999"}},
		"NEXAR_DUMP_ON_QUIT": onOff,
		"NEXAR_STACKS":       onOff,

		"NEXAR_PROFILE_LABELS": onOff,

		"NEXAR_MEMORY": {good: "inference", want: "inference", malformed: []string{"lots", "train"}},

		"NEXAR_FORM_TIMEOUT_SECS":       second(),
		"NEXAR_COLLECTIVE_TIMEOUT_SECS": second(),
		"NEXAR_BARRIER_TIMEOUT_SECS":    second(),
		"NEXAR_MESSAGE_TIMEOUT":         second(),
		"NEXAR_DEADLOCK_TIMEOUT":        second(),
		"NEXAR_LINK_IDLE_TIMEOUT":       second(),
		"NEXAR_HEARTBEAT_INTERVAL_SECS": second(),
		"NEXAR_HEARTBEAT_TIMEOUT_SECS":  second("-3s"),
		"NEXAR_RPC_TIMEOUT_SECS":        second("1h30"),
		"NEXAR_RECOVERY_TIMEOUT_SECS":   second(),

		"NEXAR_ELASTIC_CHECKPOINT_TIMEOUT_SECS": second(),
	}
}

// fields returns the variables of Config, with the names of the fields that they set.
func fields() map[string]string {
	all := make(map[string]string)
	for _, f := range settings.Fields[Config]() {
		for _, name := range f.Variables() {
			all[name] = f.Name
		}
	}
	return all
}

// sampleToken is a token of NewToken.
const sampleToken = "hzl2-2hyn-oph4-hers-r7qt-szch-goto-bef7-fal7-bhc6-q2dj-5lq2-67na"

func TestConfigFromEnv(t *testing.T) {
	for name, field := range fields() {
		s, ok := samples()[name]
		if name == logVariable || name == variable("TokenFile") || name == variable("CAFile") { // files: TestTokenFile, TestCAFile
			continue
		}
		if !ok || s.good == "" || len(s.malformed) == 0 {
			t.Errorf("field %s: no sample for %q", field, name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, s.good)
			cfg, err := ConfigFromEnv()
			if err != nil {
				t.Fatal(err)
			}
			if got := reflect.ValueOf(cfg).FieldByName(field).Interface(); !reflect.DeepEqual(got, s.want) {
				t.Errorf("%s=%s sets %s to %v, want %v", name, s.good, field, got, s.want)
			}
		})
	}
}

func TestConfigMalformed(t *testing.T) {
	for name := range fields() {
		s := samples()[name]
		for _, value := range s.malformed {
			t.Run(name+"="+value[:min(len(value), 20)], func(t *testing.T) { refuses(t, name, value, s.secret) })
		}
	}
	for _, value := range []string{"loud", "7up", "info,debug"} {
		t.Run("NEXAR_LOG="+value, func(t *testing.T) { refuses(t, "NEXAR_LOG", value, false) })
	}
}

// A token comes from a file that only its owner may access, and from one place.
func TestTokenFile(t *testing.T) {
	const name = "NEXAR_CLUSTER_TOKEN_FILE"
	token, other := NewToken(), NewToken()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	seed, err := StartSeed(t.Context(), SeedConfig{Listen: "127.0.0.1:0", World: 2, TokenFile: path})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	query := func(cfg Config) error {
		cfg.Seeds = []string{seed.Addr()}
		_, err := QueryCluster(t.Context(), cfg)
		return err
	}
	for what, cfg := range map[string]Config{"Token": {Token: token}, "TokenFile": {TokenFile: path}} {
		if err := query(cfg); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	t.Setenv(name, path)
	if err := query(Config{}); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if err := query(Config{Token: other}); !errors.Is(err, ErrToken) {
		t.Errorf("a Token in Config must have precedence over %s: got %v", name, err)
	}
	t.Setenv("NEXAR_CLUSTER_TOKEN", token)
	if err := query(Config{}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "both NEXAR_CLUSTER_TOKEN and "+name) {
		t.Errorf("with both variables: got %v, want an error that names both", err)
	}
	t.Setenv("NEXAR_CLUSTER_TOKEN", "")
	if runtime.GOOS == "windows" {
		return // It has no mode bits.
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	err = query(Config{})
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "0644") || !strings.Contains(err.Error(), "chmod 600") || strings.Contains(err.Error(), token) {
		t.Errorf("with mode 0644: got %v, want an error with the mode and what to do, without the token", err)
	}
}

// localReads lists the variables that Local reads.
var localReads = []string{"NEXAR_COLLECTIVE_TIMEOUT_SECS", "NEXAR_BARRIER_TIMEOUT_SECS", "NEXAR_MESSAGE_TIMEOUT", "NEXAR_DEADLOCK_TIMEOUT", "NEXAR_MEMORY", "NEXAR_LINKS", "NEXAR_PROFILE_LABELS", "NEXAR_ALGORITHMS", "NEXAR_LOG",
	"NEXAR_DETERMINISTIC", "NEXAR_BUCKET_BYTES", "NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES", "NEXAR_RPC_TIMEOUT_SECS", "NEXAR_RPC_IN_FLIGHT",
	"NEXAR_LARGE_MSG_BYTES", "NEXAR_PIPELINE_SEGMENT_BYTES", "NEXAR_RING_MAX_WORLD"}

// refuses checks that all functions that read the variable fail immediately, with an error that
// names it and its value, and that all others work.
func refuses(t *testing.T, name, value string, secret bool) {
	t.Helper()
	t.Setenv(name, value)
	_, fromEnv := ConfigFromEnv()
	_, fromJoin := Join(t.Context(), Config{FormTimeout: 100 * time.Millisecond, Seeds: seedsUnless(name)})
	comms, fromLocal := Local(t.Context(), 1, Config{})
	for _, c := range comms {
		c.Close()
	}
	seed, fromSeed := StartSeed(t.Context(), SeedConfig{Listen: "127.0.0.1:0", World: 1, AllowWeakToken: true})
	if fromSeed == nil {
		seed.Close()
	}
	seedReads := []string{"NEXAR_TRANSPORTS", "NEXAR_ENABLE_TCP_BULK_SIDECAR", "NEXAR_CLUSTER_TOKEN", "NEXAR_CLUSTER_TOKEN_FILE", "NEXAR_ALLOW_WEAK_TOKEN", "NEXAR_LOG",
		"NEXAR_HEARTBEAT_INTERVAL_SECS", "NEXAR_HEARTBEAT_TIMEOUT_SECS"}
	reads := map[string]bool{
		"ConfigFromEnv": true, "Join": true, "Local": slices.Contains(localReads, name), "StartSeed": slices.Contains(seedReads, name),
	}
	for call, err := range map[string]error{"ConfigFromEnv": fromEnv, "Join": fromJoin, "Local": fromLocal, "StartSeed": fromSeed} {
		switch {
		case !reads[call]:
			if err != nil {
				t.Errorf("%s, which does not read %s: error %v", call, name, err)
			}
		case !errors.Is(err, ErrConfig):
			t.Errorf("%s: error %v, want %v", call, err, ErrConfig)
		case !strings.Contains(err.Error(), name):
			t.Errorf("%s: the error does not name %s: %v", call, name, err)
		case secret == strings.Contains(err.Error(), value):
			t.Errorf("%s: secret %t, value %q, but the error is: %v", call, secret, value, err)
		}
	}
}

// seedsUnless returns an unreachable seed, or nil if name is the variable of the seeds.
func seedsUnless(name string) []string {
	if name == "NEXAR_SEEDS" {
		return nil
	}
	return []string{"127.0.0.1:1"}
}

// TestConfigSpecialValues: package settings has the tests of the parsers.
func TestConfigSpecialValues(t *testing.T) {
	for _, test := range []struct {
		name, value string
		field       func(Config) any
		want        any
	}{
		{"NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES", "0", func(c Config) any { return c.CompressedMaxBytes }, -1},
		{"NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES", "-1", func(c Config) any { return c.CompressedMaxBytes }, -1},
		{"NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES", "", func(c Config) any { return c.CompressedMaxBytes }, 0},
		{"NEXAR_RECOVERY_POLICY", "auto", func(c Config) any { return c.Recovery }, Automatic},
		{"NEXAR_RECOVERY_POLICY", "automatic", func(c Config) any { return c.Recovery }, Automatic},
		{"NEXAR_RECOVERY_POLICY", "abort", func(c Config) any { return c.Recovery }, Abort},
		{"NEXAR_RANK", "0", func(c Config) any { return *c.Rank }, 0},
		{"NEXAR_BARRIER_TIMEOUT_SECS", "0", func(c Config) any { return c.BarrierTimeout }, time.Duration(0)},
		{"NEXAR_BARRIER_TIMEOUT_SECS", "-1", func(c Config) any { return c.BarrierTimeout }, -time.Second},
		{"NEXAR_BARRIER_TIMEOUT_SECS", "250ms", func(c Config) any { return c.BarrierTimeout }, 250 * time.Millisecond},
		{"NEXAR_ENCRYPT_BULK_TRANSPORT", "1", func(c Config) any { return c.PlainBulk }, false},
	} {
		t.Run(test.name+"="+test.value, func(t *testing.T) {
			t.Setenv(test.name, test.value)
			cfg, err := ConfigFromEnv()
			if err != nil {
				t.Fatal(err)
			}
			if got := test.field(cfg); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestConfigLog(t *testing.T) {
	for value, want := range map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "WARN": slog.LevelWarn, "error": slog.LevelError,
	} {
		t.Setenv("NEXAR_LOG", value)
		cfg, err := ConfigFromEnv()
		if err != nil || cfg.Log == nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		if !cfg.Log.Enabled(t.Context(), want) || cfg.Log.Enabled(t.Context(), want-1) {
			t.Errorf("%s: the minimum level of the log is not %v", value, want)
		}
	}
}

// TestDefaultLog: without Config.Log, warnings and errors go to slog.Default. NEXAR_LOG=off
// silences them, and other levels of NEXAR_LOG go to standard error.
func TestDefaultLog(t *testing.T) {
	var log testlog.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	logAll := func(l *slog.Logger) {
		l = l.With("rank", 3).WithGroup("group")
		l.Debug("fine")
		l.Info("usual")
		l.Warn("odd", "a", 1)
		l.Error("bad")
	}
	cfg, err := Config{}.fill()
	if err != nil {
		t.Fatal(err)
	}
	logAll(cfg.Log)
	if got := log.String(); strings.Contains(got, "fine") || strings.Contains(got, "usual") ||
		!strings.Contains(got, "level=WARN msg=odd rank=3 group.a=1") || !strings.Contains(got, "level=ERROR msg=bad rank=3") {
		t.Errorf("slog.Default has %q, want the warning and the error", got)
	}
	n := len(log.String())
	for _, level := range []string{"off", "error"} {
		t.Setenv("NEXAR_LOG", level)
		if cfg, err = (Config{}).fill(); err != nil {
			t.Fatal(err)
		}
		if level == "off" {
			logAll(cfg.Log)
		}
		cfg.Log.Warn("odd")
		if got := log.String()[n:]; got != "" {
			t.Errorf("NEXAR_LOG=%s: slog.Default has %q, want nothing", level, got)
		}
	}
}

// TestLocalIgnoresOtherSettings: Local checks only the settings that it uses.
func TestLocalIgnoresOtherSettings(t *testing.T) {
	rank := -1
	comms, err := Local(t.Context(), 1, Config{
		Seeds: []string{"nonsense"}, Listen: "nonsense", Rank: &rank, HeartbeatTimeout: -1, Token: "two words",
		Transports: []string{"udp"}, Topology: "ring", Recovery: "never",
	})
	if err != nil {
		t.Fatal(err)
	}
	comms[0].Close()
	for _, cfg := range []Config{{Memory: "lots"}, {BucketBytes: -1}, {MaxConcurrentCalls: -1}, {Algorithms: []string{"ring"}}} {
		if _, err := Local(t.Context(), 1, cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: error %v, want %v", cfg, err, ErrConfig)
		}
	}
}

// TestConfigDefaults: unset fields get these defaults.
func TestConfigDefaults(t *testing.T) {
	cfg, err := Config{}.fill()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Log == nil || !cfg.Log.Enabled(t.Context(), slog.LevelWarn) || cfg.Log.Enabled(t.Context(), slog.LevelInfo) {
		t.Error("the minimum level of the default log is not WARN")
	}
	cfg.Log = nil
	want := Config{
		Listen: ":0", FormTimeout: 5 * time.Minute, Launcher: "auto", LaunchSeeds: 1, Transports: []string{"shm", "tcp", "quic"}, Topology: "full", Links: "demand",
		CollectiveTimeout: 30 * time.Minute, BarrierTimeout: 30 * time.Minute, MessageTimeout: 30 * time.Minute, DeadlockTimeout: time.Minute, BucketBytes: 4 << 20, CompressedMaxBytes: 4 << 30,
		CallTimeout: 30 * time.Second, MaxConcurrentCalls: 1024,
		HeartbeatInterval: time.Second, HeartbeatTimeout: 5 * time.Second, Memory: "training",
		CertificateGrace: 24 * time.Hour, Recovery: Automatic, RecoveryTimeout: 30 * time.Second, ReconfigureTimeout: 30 * time.Minute,
	}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got %+v, want %+v", cfg, want)
	}
	if cfg, err := (ConfigFromEnv()); err != nil || !reflect.DeepEqual(cfg, Config{}) {
		t.Errorf("ConfigFromEnv: got %+v, %v, want the zero value", cfg, err)
	}
	if defaultListen != want.Listen {
		t.Errorf("default of a seed is to listen at %s, of a node at %s, want the same", defaultListen, want.Listen)
	}
}

// TestConfigPrecedence: for each field, the value of the program takes precedence over the
// environment, and the environment over the default.
func TestConfigPrecedence(t *testing.T) {
	for name, field := range fields() {
		s, ok := samples()[name]
		if !ok || s.good == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			get := func(c Config) any { return reflect.ValueOf(c).FieldByName(field).Interface() }
			t.Setenv(name, s.good)
			cfg, err := Config{}.fill()
			if err != nil || !reflect.DeepEqual(get(cfg), s.want) {
				t.Errorf("%s=%s: %s is %v, %v, want %v", name, s.good, field, get(cfg), err, s.want)
			}
			own := cfg
			if !settle(&own, field) {
				return // a bool has no second value that is set
			}
			cfg, err = own.fill()
			if err != nil || !reflect.DeepEqual(get(cfg), get(own)) {
				t.Errorf("%s=%s: %s is %v, %v, want %v of the program", name, s.good, field, get(cfg), err, get(own))
			}
		})
	}
}

// settle sets a field to a valid value that is not in samples, and reports whether there is one.
func settle(cfg *Config, field string) bool {
	seven := 7
	values := map[string]any{
		"Seeds": []string{"own.example:1"}, "Token": NewToken(), "Listen": "10.0.0.7:7", "Advertise": "own.example", "Rank": &seven,
		"Transports": []string{"quic"}, "Algorithms": []string{"all_reduce=ring"}, "Memory": "training", "Recovery": Abort,
	}
	v := reflect.ValueOf(cfg).Elem().FieldByName(field)
	switch own, ok := values[field]; {
	case ok:
		v.Set(reflect.ValueOf(own))
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	default:
		return false
	}
	return true
}

func TestConfigContradictions(t *testing.T) {
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{HeartbeatInterval: 2 * time.Second, HeartbeatTimeout: 2 * time.Second},
			"NEXAR_HEARTBEAT_TIMEOUT_SECS=2s: not more than NEXAR_HEARTBEAT_INTERVAL_SECS, which is 2s"},
		{Config{HeartbeatInterval: time.Minute}, "NEXAR_HEARTBEAT_INTERVAL_SECS=1m0s: not less than NEXAR_HEARTBEAT_TIMEOUT_SECS, which is 5s by default"},
		{Config{HeartbeatTimeout: time.Second}, "NEXAR_HEARTBEAT_TIMEOUT_SECS=1s: not more than NEXAR_HEARTBEAT_INTERVAL_SECS, which is 1s by default"},
		{Config{Seeds: []string{"fd00::1"}}, `NEXAR_SEEDS="fd00::1": must be an address`},
		{Config{Listen: "a.example"}, `NEXAR_LISTEN="a.example": must be an address`},
		{Config{Memory: "lots"}, `NEXAR_MEMORY="lots": not one of training, inference`},
		{Config{Token: "two words"}, "configuration: Token: the cluster token contains white space"},
		{Config{Transports: []string{"udp"}}, `NEXAR_TRANSPORTS="udp": "udp" is not one of shm, tcp, quic`},
		{Config{MaxConcurrentCalls: 1 << 19}, "NEXAR_RPC_IN_FLIGHT=524288: not from 0 to 262144"},
		{Config{BucketBytes: -1}, "NEXAR_BUCKET_BYTES=-1: not from 0 to 549755813888"},
		{Config{BucketBytes: math.MaxInt}, "NEXAR_BUCKET_BYTES=9223372036854775807: not from 0 to 549755813888"},
		{Config{CompressedMaxBytes: math.MaxInt}, "NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES=9223372036854775807: more than 549755813888"},
		{Config{LargeMessageBytes: math.MaxInt}, "NEXAR_LARGE_MSG_BYTES=9223372036854775807: not from 0 to 549755813888"},
		{Config{PipelineSegmentBytes: -1}, "NEXAR_PIPELINE_SEGMENT_BYTES=-1: not from 0 to 549755813888"},
		{Config{Links: "lazy"}, `NEXAR_LINKS="lazy": not one of demand, eager`},
		{Config{Recovery: "auto"}, `NEXAR_RECOVERY_POLICY="auto": not one of automatic, manual, abort`},
		{Config{Topology: "hypercube:3"}, `NEXAR_TOPOLOGY="hypercube:3": "hypercube" has no number of neighbors`},
		{Config{Topology: "k-regular:1"}, `NEXAR_TOPOLOGY="k-regular:1": the number of neighbors is 1: must be at least 2`},
		{Config{Topology: "k-regular:no"}, `NEXAR_TOPOLOGY="k-regular:no": the number of neighbors is not a whole number`},
	} {
		if _, err := test.cfg.fill(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %v with %q", err, ErrConfig, test.want)
		}
	}
	for _, cfg := range []Config{{HeartbeatInterval: -1, HeartbeatTimeout: 1}} {
		if _, err := cfg.fill(); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// TestJoinNeeds: the error for a missing setting names the variable that sets it.
func TestJoinNeeds(t *testing.T) {
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
