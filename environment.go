package nexar

import (
	"fmt"
	"os"

	"github.com/nexar-go/nexar/internal/settings"
	"github.com/nexar-go/nexar/internal/wire"
)

// envPrefix is what the variables of this package begin with.
const envPrefix = "NEXAR_"

// ConfigFromEnv reads a Config from the environment. Times, whose variables
// end in _SECS, are numbers of seconds, or as time.ParseDuration takes them
// ("250ms"), 0 or at least a nanosecond. A malformed value is an ErrConfig that names the variable.
// Variables that are empty or not set leave their fields zero.
func ConfigFromEnv() (Config, error) {
	cfg, err := parseEnv()
	return cfg, opError("environment", err)
}

// parseEnv reads the variables of some fields, or of all if it gets none.
func parseEnv(fields ...string) (Config, error) {
	cfg, _, err := readEnv(fields)
	return cfg, err
}

// readEnv also returns the variables that are set.
func readEnv(fields []string) (cfg Config, vars map[string]string, err error) {
	if cfg, vars, err = settings.Read[Config](os.Environ(), fields...); err != nil {
		return Config{}, nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if vars[variable("CompressedMax")] != "" && cfg.CompressedMax == 0 {
		cfg.CompressedMax = -1
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

// The variables by which TCP, and the protection of what goes over it, are
// switched off. Both are on by default.
const (
	sidecarVariable = envPrefix + "ENABLE_TCP_BULK_SIDECAR"
	encryptVariable = envPrefix + "ENCRYPT_BULK_TRANSPORT"
)

// logVariable makes a Logger.
const logVariable = envPrefix + "LOG"

// UnknownEnv finds the variables of an environment, as os.Environ has it, that
// begin with NEXAR_ and mean nothing to this package or its commands: most
// likely they are misspelt. Join logs them as warnings.
func UnknownEnv(environ []string) []Problem {
	var list []Problem
	for _, u := range settings.Unknown(environ, envPrefix, knownEnv()) {
		list = append(list, Problem{What: "unknown variable " + wire.Escape(u.Name), Mend: u.Mend})
	}
	return list
}

// knownEnv are the variables that mean something: those of Config, and those
// that are no settings of a node.
func knownEnv() []string {
	names := []string{"NEXAR_WORLD", "NEXAR_LOCAL_RANK", "NEXAR_REQUIRE"}
	for _, f := range settings.Fields[Config]() {
		names = append(names, f.Variables()...)
	}
	return names
}
