package nexar

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/settings"
	"github.com/nexar-go/nexar/internal/wire"
)

// envPrefix is the prefix of the variables of this package.
const envPrefix = "NEXAR_"

// ConfigFromEnv returns the Config of the environment. Variables that are empty or not set leave their
// fields zero. Times are numbers of seconds ("0.5") or durations of [time.ParseDuration] ("250ms"), 0 or
// at least a nanosecond. The error is [ErrConfig] and names the variable and the value.
func ConfigFromEnv() (Config, error) {
	cfg, err := parseEnv()
	return cfg, opError("environment", err)
}

// parseEnv reads the variables of some fields, or of all if it gets none.
func parseEnv(fields ...string) (Config, error) {
	cfg, _, err := readEnv(fields)
	return cfg, err
}

// readEnv is like parseEnv, and also returns the variables that are set.
func readEnv(fields []string) (cfg Config, vars map[string]string, err error) {
	if cfg, vars, err = settings.Read[Config](os.Environ(), fields...); err != nil {
		return Config{}, nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if vars[variable("CompressedMaxBytes")] != "" && cfg.CompressedMaxBytes == 0 {
		cfg.CompressedMaxBytes = -1
	}
	if strings.EqualFold(string(cfg.Recovery), "auto") {
		cfg.Recovery = Automatic
	}
	if cfg.Log, err = settings.Log(logVariable, vars[logVariable]); err != nil {
		return Config{}, nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	cfg.Transports, err = settings.Switch(cfg.Transports, settings.Defaults[Config]().Transports, "tcp", "quic", sidecarVariable, vars)
	if err == nil {
		cfg.PlainBulk, err = settings.Opposite(cfg.PlainBulk, variable("PlainBulk"), encryptVariable, vars)
	}
	if err != nil {
		return Config{}, nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if len(fields) == 0 { // A node has no use for the variables of seeds; a mistake in them is an error in any case.
		if _, err := new(SeedConfig).elastic(); err != nil {
			return Config{}, nil, err
		}
	}
	return cfg, vars, cfg.check()
}

// variable is the environment variable of a field of Config.
func variable(field string) string { return settings.Variable[Config](field) }

// The variables that disable TCP, and TLS over TCP. Both are enabled by default.
const (
	sidecarVariable = envPrefix + "ENABLE_TCP_BULK_SIDECAR"
	encryptVariable = envPrefix + "ENCRYPT_BULK_TRANSPORT"
)

// logVariable selects the level of a logger to standard error.
const logVariable = envPrefix + "LOG"

// roots returns the CAs of CAFile, or nil.
func (cfg *Config) roots(ctx context.Context) (*pki.Roots, error) {
	if cfg.CAFile == "" {
		return nil, nil
	}
	roots, err := pki.ReadRoots(ctx, cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %s=%q: %w", ErrConfig, variable("CAFile"), cfg.CAFile, err)
	}
	return roots, nil
}

// token returns the token of Token or TokenFile, zero if there is none. No error contains the token.
func (cfg *Config) token(ctx context.Context) (t pki.Token, err error) {
	name, value := "Token", cfg.Token
	switch {
	case cfg.Token != "" && cfg.TokenFile != "":
		return t, fmt.Errorf("%w: both %s and %s=%q are set: unset one of them", ErrConfig, variable("Token"), variable("TokenFile"), cfg.TokenFile)
	case cfg.TokenFile != "":
		name, value = "TokenFile", cfg.TokenFile
		if t, err = pki.ReadTokenFile(ctx, cfg.TokenFile); err != nil && strings.HasPrefix(cfg.TokenFile, "/proc/") && os.Getenv(rankFileVariable) != "" {
			err = fmt.Errorf("%w. Only processes in the PID namespace of nexar run can read its token there: in a container, for example, write a token to a file that both can read, and start nexar run with %[2]s=FILE and --env %[2]s=FILE, or with %[3]s and --env %[3]s=TOKEN",
				err, variable("TokenFile"), variable("Token"))
		}
	case cfg.Token != "":
		t, err = pki.ParseToken(cfg.Token)
	default:
		return t, nil
	}
	if err == nil && !cfg.AllowWeakToken {
		if err = t.CheckStrength(); err != nil && cfg.TokenFile != "" {
			err = fmt.Errorf("token file %q: %w", cfg.TokenFile, err)
		}
	}
	if err != nil {
		if v := variable(name); os.Getenv(v) == value {
			name = v
		}
		return t, fmt.Errorf("%w: %s: %w", ErrConfig, name, err)
	}
	return t, nil
}

// CheckEnviron returns a problem for each variable in environ that begins with NEXAR_ and has no meaning
// in this package and its commands. Most likely it is misspelt, and Fix names the most similar one.
// environ has the form of [os.Environ]. [Join] logs these problems as warnings.
func CheckEnviron(environ []string) []Problem {
	var list []Problem
	for _, u := range settings.Unknown(environ, envPrefix, knownEnv()) {
		p := Problem{Text: "unknown variable " + wire.Escape(u.Name), Fix: u.Fix}
		if why, foreign := rustVariables[u.Name]; foreign {
			p = Problem{Text: u.Name + " has no effect: " + why, Fix: "unset it"}
		}
		list = append(list, p)
	}
	return list
}

// rustVariables are variables of the Rust crate nexar for which this package has no setting, and the reasons.
var rustVariables = map[string]string{
	"NEXAR_MAX_FRAME_BYTES":     "a receive bounds the memory of its message, and frames of messages without a receive have at most 128 KiB",
	"NEXAR_RECV_QUEUE_DEPTH":    "messages without a receive are bounded by their bytes, 1 MiB from each peer, in place of their number",
	"NEXAR_RECV_INFLIGHT_BYTES": "a node keeps at most 1 MiB of messages of each peer without a receive, and reads longer ones into the buffer of the receive",
}

// knownEnv returns the known variables: those of Config and of seeds, and those that nexar run and package launch use.
func knownEnv() []string {
	names := []string{"NEXAR_WORLD", localRankVariable, "NEXAR_JOB", "NEXAR_JOBSET_JOBS", "NEXAR_REQUIRE"}
	for _, f := range append(settings.Fields[Config](), settings.Fields[seedEnv]()...) {
		names = append(names, f.Variables()...)
	}
	return names
}
