package raftlog

import (
	"fmt"
	"log/slog"
)

// A logger passes the messages of Raft to a slog.Logger, at debug level.
type logger struct{ log *slog.Logger }

func (l logger) say(s string)                     { l.log.Debug("raft: " + s) }
func (l logger) Debug(v ...any)                   { l.say(fmt.Sprint(v...)) }
func (l logger) Debugf(format string, v ...any)   { l.say(fmt.Sprintf(format, v...)) }
func (l logger) Info(v ...any)                    { l.say(fmt.Sprint(v...)) }
func (l logger) Infof(format string, v ...any)    { l.say(fmt.Sprintf(format, v...)) }
func (l logger) Warning(v ...any)                 { l.say(fmt.Sprint(v...)) }
func (l logger) Warningf(format string, v ...any) { l.say(fmt.Sprintf(format, v...)) }
func (l logger) Error(v ...any)                   { l.say(fmt.Sprint(v...)) }
func (l logger) Errorf(format string, v ...any)   { l.say(fmt.Sprintf(format, v...)) }

// A raftPanic is the reason for which Raft cannot continue.
type raftPanic string

func (l logger) Fatal(v ...any)                 { panic(raftPanic(fmt.Sprint(v...))) }
func (l logger) Fatalf(format string, v ...any) { panic(raftPanic(fmt.Sprintf(format, v...))) }
func (l logger) Panic(v ...any)                 { panic(raftPanic(fmt.Sprint(v...))) }
func (l logger) Panicf(format string, v ...any) { panic(raftPanic(fmt.Sprintf(format, v...))) }
