package nexar

import (
	"fmt"
	"os"

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
	if cfg.Recovery == "auto" {
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

// CheckEnviron returns a problem for each variable in environ that begins with NEXAR_ and has no meaning
// in this package and its commands. Most likely it is misspelt, and Fix names the most similar one.
// environ has the form of [os.Environ]. [Join] logs these problems as warnings.
func CheckEnviron(environ []string) []Problem {
	var list []Problem
	for _, u := range settings.Unknown(environ, envPrefix, knownEnv()) {
		list = append(list, Problem{Text: "unknown variable " + wire.Escape(u.Name), Fix: u.Fix})
	}
	return list
}

// knownEnv returns the known variables: those of Config and of seeds, and those that nexar run sets.
func knownEnv() []string {
	names := []string{"NEXAR_WORLD", localRankVariable, "NEXAR_REQUIRE"}
	for _, f := range append(settings.Fields[Config](), settings.Fields[seedEnv]()...) {
		names = append(names, f.Variables()...)
	}
	return names
}
