package trace

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// plain is an Operation with no methods.
type plain Operation

// A form is an Operation as JSON has it: without ranks that there are not, and
// with its time in seconds.
type form struct {
	plain
	Root    *int    `json:"root,omitempty"`
	Peer    *int    `json:"peer,omitempty"`
	Seconds float64 `json:"seconds"`
}

// MarshalJSON writes the operation for programs.
func (o Operation) MarshalJSON() ([]byte, error) {
	f := form{plain: plain(o), Seconds: o.Took.Seconds()}
	if o.Root >= 0 {
		f.Root = &o.Root
	}
	if o.Peer >= 0 {
		f.Peer = &o.Peer
	}
	return json.Marshal(f)
}

// UnmarshalJSON reads what MarshalJSON has written.
func (o *Operation) UnmarshalJSON(b []byte) error {
	var f form
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	*o = Operation(f.plain)
	o.Root, o.Peer = -1, -1
	if f.Root != nil {
		o.Root = *f.Root
	}
	if f.Peer != nil {
		o.Peer = *f.Peer
	}
	if f.Seconds < 0 || f.Seconds > secondsMax {
		return fmt.Errorf("record: an operation of %g seconds", f.Seconds)
	}
	o.Took = time.Duration(f.Seconds * float64(time.Second)).Round(time.Nanosecond)
	return nil
}

// secondsMax is the longest that an operation takes: some hundred years.
const secondsMax = 1 << 32

// EncodedMax is how long an encoded snapshot is at the most, in bytes.
const EncodedMax = 32 << 10

// Encode writes a snapshot for other nodes, in at most EncodedMax bytes: with the
// last 32 operations, or as many as there is room for. Those under way stay
// longest.
func Encode(s Snapshot) []byte {
	s.Name = printable(s.Name, nameMax)
	s.Operations = slices.Clone(s.Operations)
	s.Links = slices.Clone(s.Links[:min(len(s.Links), encodedLinks)])
	for i := range s.Links {
		s.Links[i].Over = printable(s.Links[i].Over, overMax)
	}
	late := 0
	for i := range s.Operations {
		o := &s.Operations[i]
		o.Function = printable(o.Function, nameMax)
		late += sign(o.UnderWay())
	}
	for most := encodedOperations; ; most /= 2 {
		s.Operations = keep(s.Operations, min(late, most), most-min(late, most))
		b, err := json.Marshal(s)
		if err != nil {
			panic("record: " + err.Error()) // Nothing in it can fail.
		}
		if len(b) <= EncodedMax || most == 0 {
			return b
		}
	}
}

const (
	// encodedLinks is the number of links that an encoded snapshot has at most: they
	// leave most of the room to operations.
	encodedLinks = 128
	// overMax is the length of the name of a transport, in bytes.
	overMax = 16
)

// encodedOperations is how many operations an encoded snapshot has at the most.
const encodedOperations = 32

// Decode reads what Encode has written, on another node. What it returns can be
// shown on a terminal.
func Decode(b []byte) (Snapshot, error) {
	var s Snapshot
	if len(b) > EncodedMax {
		return s, fmt.Errorf("record: a snapshot of %d bytes, at most %d are allowed", len(b), EncodedMax)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return Snapshot{}, fmt.Errorf("record: %w", err)
	}
	if err := s.check(); err != nil {
		return Snapshot{}, err
	}
	return s, nil
}

// nameMax is how long the texts of a snapshot are, in bytes.
const nameMax = 256

// check finds what Encode would not have written.
func (s *Snapshot) check() error {
	if s.Rank < 0 || s.Rank >= s.Size || len(s.Operations) > encodedOperations || len(s.Links) > encodedLinks {
		return fmt.Errorf("record: rank %d of %d, with %d operations and %d links", s.Rank, s.Size, len(s.Operations), len(s.Links))
	}
	texts := []string{s.Node, s.Name}
	for _, l := range s.Links {
		if l.Rank < 0 {
			return fmt.Errorf("record: a link to rank %d", l.Rank)
		}
		texts = append(texts, l.Over)
	}
	for i := range s.Operations {
		o := &s.Operations[i]
		if !o.sound() {
			return fmt.Errorf("record: operation %d has a number that cannot be", i)
		}
		texts = append(texts, o.Comm, o.Use, o.Op, o.Type, o.Reduce, o.Plan, o.Function, o.End)
	}
	for _, text := range texts {
		if text != printable(text, nameMax) {
			return fmt.Errorf("record: a text that cannot be shown: %.40q", text)
		}
	}
	return nil
}

// sound reports whether the numbers of an operation can be.
func (o *Operation) sound() bool {
	if o.Root < -1 || o.Peer < -1 || o.Tag < -1 || o.Length < 0 || o.Bytes < 0 || o.Round < 0 || o.Rounds < 0 || o.More < 0 {
		return false
	}
	return len(o.Waiting) <= WaitingMax && !slices.ContainsFunc(o.Waiting, func(r int) bool { return r < 0 })
}

// printable is a text without what a terminal would not show as it is, and cut to
// so many bytes.
func printable(text string, most int) string {
	text = strings.ToValidUTF8(text, "�")
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '�'
		}
		return r
	}, text)
	for len(text) > most {
		_, n := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-n]
	}
	return text
}
