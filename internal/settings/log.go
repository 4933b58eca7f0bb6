package settings

import (
	"fmt"
	"log/slog"
	"os"
)

// Log returns a Logger to standard error for the level in a variable, or nil if level is empty.
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
