package tcp

import (
	"log/slog"

	"github.com/nexar-go/nexar/internal/testlog"
)

// A logBuffer keeps log records.
type logBuffer struct{ testlog.Buffer }

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
