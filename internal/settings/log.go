package settings

import (
	"fmt"
	"log/slog"
	"os"
)

// Log is a Logger to standard error from the level on that a variable has, or nil
// if it has none.
func Log(variable, level string) (*slog.Logger, error) {
	if level == "" {
		return nil, nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("%s=%q: not one of debug, info, warn, error", variable, level)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}
