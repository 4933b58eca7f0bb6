package settings

import (
	"context"
	"fmt"
	"log/slog"
	"os"
)

// Log returns a Logger to standard error for the level in a variable: one that discards
// everything if level is "off", and nil if level is empty.
func Log(variable, level string) (*slog.Logger, error) {
	switch level {
	case "":
		return nil, nil
	case "off":
		return slog.New(slog.DiscardHandler), nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("%s=%q: not one of debug, info, warn, error, off", variable, level)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}

// Warnings returns a Logger that passes warnings and errors to log, and discards the rest.
func Warnings(log *slog.Logger) *slog.Logger { return slog.New(warnings{log.Handler()}) }

// warnings is a Handler for levels from [slog.LevelWarn] on.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
