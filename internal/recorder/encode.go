package recorder

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// EncodedMax bounds the length of an encoded snapshot, in bytes.
const EncodedMax = 32 << 10

// briefMax bounds the length of a brief encoded snapshot, in bytes.
const briefMax = 4 << 10

const (
	// encodedOperations bounds the operations of an encoded snapshot.
	encodedOperations = 32
	// encodedLinks bounds the links of an encoded snapshot, to leave most of the room to
	// operations.
	encodedLinks = 128
	// encodedCounters bounds the counters of an encoded snapshot.
	encodedCounters = 24
	// historyOperations bounds the operations of a snapshot of the history.
	historyOperations = 128
	// briefOperations and briefLinks are those of a brief snapshot.
	briefOperations, briefLinks = 6, 8
	// apartMax bounds the time between a snapshot and the start of an operation in it, the duration of an operation, and the
	// difference of two clocks, so that sums of them are in range. A clock may begin in 1970.
	apartMax = 90 * 365 * 24 * time.Hour
	// durationsMax bounds the number of durations in a bucket.
	durationsMax = 1 << 56
	// transportMax bounds the name of a transport, the purpose and class of a link, and its method for memory of devices, in bytes.
	transportMax = 16
	// siteMax bounds the place of a call, in bytes.
	siteMax = 128
	// nameMax bounds other texts of a snapshot, in bytes.
	nameMax = 256
)

// Encode encodes a snapshot for the seed, in at most EncodedMax bytes: with the last 32
// operations, 128 links and 24 counters, or fewer operations and links if they do not fit. Completed operations are dropped before
// running ones. A brief snapshot has at most 4 KiB, with six operations, eight links and one counter of all operations; links to ranks that operations wait
// for come first. One of the history has 128 operations and nothing else.
func Encode(s trace.Snapshot, detail wire.Detail) []byte {
	most, limit, links := EncodedMax, encodedOperations, encodedLinks
	s.Name, s.Site = printable(s.Name, nameMax), printable(s.Site, siteMax)
	s.Operations = slices.Clone(s.Operations)
	s.Links = slices.Clone(s.Links)
	switch detail {
	case wire.Brief:
		most, limit, links, s.Counters = briefMax, briefOperations, briefLinks, []trace.Counter{sum(s.Counters)}
		sortLinks(&s)
	case wire.History:
		limit, s.Links, s.Counters = historyOperations, nil, nil
	}
	s.Links = s.Links[:min(len(s.Links), links)]
	for i := range s.Links {
		s.Links[i].Transport = printable(s.Links[i].Transport, transportMax)
		s.Links[i].Purpose = printable(s.Links[i].Purpose, transportMax)
		s.Links[i].Class = printable(s.Links[i].Class, transportMax)
		s.Links[i].DeviceMemory = printable(s.Links[i].DeviceMemory, transportMax)
	}
	s.Counters = s.Counters[:min(len(s.Counters), encodedCounters)]
	running := 0
	for i := range s.Operations {
		o := &s.Operations[i]
		o.Function, o.Site = printable(o.Function, nameMax), printable(o.Site, siteMax)
		if o.Running() {
			running++
		}
	}
	for {
		s.Operations = keep(s.Operations, min(running, limit), limit-min(running, limit))
		b, err := json.Marshal(s)
		if err != nil {
			panic("recorder: " + err.Error()) // A Snapshot has only types that JSON can encode.
		}
		switch {
		case len(b) <= most:
			return b
		case limit > encodedOperations/4:
			limit -= limit / 4
		case len(s.Links) > encodedLinks/8:
			s.Links = s.Links[:len(s.Links)/2]
		case limit > 0:
			limit /= 2
		default: // Texts of this node are long.
			s.Links, s.Counters = nil, s.Counters[:len(s.Counters)/2]
		}
	}
}

// sum returns a counter of all operations.
func sum(counters []trace.Counter) (all trace.Counter) {
	for i := range counters {
		c := &counters[i]
		all.Calls, all.Failed, all.Bytes, all.Waited = all.Calls+c.Calls, all.Failed+c.Failed, all.Bytes+c.Bytes, all.Waited+c.Waited
	}
	return all
}

// sortLinks puts the links to ranks that running operations wait for first, and then those with most bytes.
func sortLinks(s *trace.Snapshot) {
	awaited := make(map[int]int)
	for i := range s.Operations {
		if o := &s.Operations[i]; o.Running() {
			for _, r := range o.Waiting {
				awaited[r] = -1
			}
		}
	}
	slices.SortStableFunc(s.Links, func(a, b trace.Link) int {
		return cmp.Or(cmp.Compare(awaited[a.Rank], awaited[b.Rank]), cmp.Compare(b.Sent+b.Received, a.Sent+a.Received))
	})
}

// Decode decodes a snapshot of another node, which is not trusted. The texts of the
// result are safe to print on a terminal.
func Decode(b []byte) (trace.Snapshot, error) {
	var s trace.Snapshot
	if len(b) > EncodedMax {
		return s, fmt.Errorf("trace: a snapshot has %d bytes, at most %d are allowed", len(b), EncodedMax)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return trace.Snapshot{}, fmt.Errorf("trace: %w", err)
	}
	if err := check(&s); err != nil {
		return trace.Snapshot{}, err
	}
	return s, nil
}

// check finds values that Encode does not produce.
func check(s *trace.Snapshot) error {
	if s.Rank < 0 || s.Rank >= s.Size || len(s.Operations) > historyOperations || len(s.Links) > encodedLinks || len(s.Counters) > encodedCounters {
		return fmt.Errorf("trace: a snapshot of rank %d of %d, with %d operations, %d links and %d counters, want at most %d, %d and %d",
			s.Rank, s.Size, len(s.Operations), len(s.Links), len(s.Counters), historyOperations, encodedLinks, encodedCounters)
	}
	texts := []string{s.Node, s.Name, s.Site}
	for _, l := range s.Links {
		if l.Rank < 0 {
			return fmt.Errorf("trace: a link to rank %d", l.Rank)
		}
		if l.Connections < 0 || l.Stalled < 0 {
			return fmt.Errorf("trace: a link with %d connections that stalls for %v", l.Connections, l.Stalled)
		}
		texts = append(texts, l.Transport, l.Purpose, l.Class, l.DeviceMemory)
	}
	for i := range s.Counters {
		c := &s.Counters[i]
		if !isCounter(c) {
			return fmt.Errorf("trace: counter %d of %d has a number out of range", i, len(s.Counters))
		}
		texts = append(texts, c.Op, c.Plan)
	}
	if p := &s.Process; p.Goroutines < 0 || p.LentBuffers < 0 || p.IdleBytes < 0 || p.SharedBytes < 0 || p.Failures < 0 || p.Recovery < 0 {
		return fmt.Errorf("trace: a number of the process is negative: %+v", *p)
	}
	for i := range s.Operations {
		o := &s.Operations[i]
		if !isValid(o) || s.Time.Sub(o.Start).Abs() > apartMax {
			return fmt.Errorf("trace: operation %d of %d has a number out of range", i, len(s.Operations))
		}
		texts = append(texts, o.Comm, o.Purpose, o.Op, o.Type, o.Reduce, o.Plan, o.Function, o.Outcome, o.Site)
	}
	for _, text := range texts {
		if text != printable(text, nameMax) {
			return fmt.Errorf("trace: a text is too long or not printable: %.40q", text)
		}
	}
	return nil
}

// isValid reports whether the numbers of an operation are in range.
func isValid(o *trace.Operation) bool {
	if o.Root < -1 || o.Peer < -1 || o.Tag < -1 || o.Length < 0 || o.Bytes < 0 || o.Round < 0 || o.Rounds < 0 || o.WaitingMore < 0 || o.Still < 0 || o.Still > apartMax || o.Duration > apartMax {
		return false
	}
	return len(o.Waiting) <= WaitingMax && !slices.ContainsFunc(o.Waiting, func(r int) bool { return r < 0 })
}

// isCounter reports whether the numbers of a counter are in range.
func isCounter(c *trace.Counter) bool {
	d := &c.Durations
	if c.Ranks < 0 || c.Waited < 0 || d.Sum < 0 || len(c.WaitedFor) > trace.WaitedForMax {
		return false
	}
	if slices.ContainsFunc(d.Counts, func(n uint64) bool { return n > durationsMax }) { // so that their sum is in range
		return false
	}
	if d.First < trace.DurationFirst || d.First > trace.DurationLast || d.First+len(d.Counts)-1 > trace.DurationLast {
		return false
	}
	return !slices.ContainsFunc(c.WaitedFor, func(t trace.RankTime) bool { return t.Rank < 0 || t.Time < 0 })
}

// printable replaces characters that a terminal would interpret, and cuts the text to at
// most limit bytes.
func printable(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
	for len(text) > limit {
		_, n := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-n]
	}
	return text
}
