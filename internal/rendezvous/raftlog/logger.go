package raftlog

import (
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
)

// A logger passes the messages of Raft to a slog.Logger, at debug level. It panics with a
// raftPanic if Raft cannot continue.
type logger struct{ raft.DefaultLogger }

func newLogger(log *slog.Logger) *logger {
	l := new(logger)
	l.Logger = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	l.EnableDebug()
	return l
}

// A raftPanic is the reason why Raft cannot continue.
type raftPanic string

func (l *logger) Fatal(v ...any)                 { panic(raftPanic(fmt.Sprint(v...))) }
func (l *logger) Fatalf(format string, v ...any) { panic(raftPanic(fmt.Sprintf(format, v...))) }
func (l *logger) Panic(v ...any)                 { panic(raftPanic(fmt.Sprint(v...))) }
func (l *logger) Panicf(format string, v ...any) { panic(raftPanic(fmt.Sprintf(format, v...))) }
