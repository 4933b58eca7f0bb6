package timeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// name names a node by its rank, again if the rank has changed.
func (w *Writer) name(s *trace.Snapshot, n *node) {
	if n.named != "" && n.rank == s.Rank {
		n.epoch = s.Epoch
		return
	}
	n.rank, n.epoch = s.Rank, s.Epoch
	n.named = fmt.Sprintf("rank %d · %s", s.Rank, cmp.Or(s.Name, fmt.Sprintf("%.8s", s.Node)))
	if n.clock.blur > 0 {
		n.named += fmt.Sprintf(" · clock within %v", n.clock.blur.Round(10*time.Microsecond))
	}
	w.meta("process_name", n, 0, "name", text(n.named))
	w.meta("process_sort_index", n, 0, "sort_index", strconv.Itoa(s.Rank))
}

// meta writes a name of a process or thread.
func (w *Writer) meta(what string, n *node, tid int, key, value string) {
	w.event()
	w.line = fmt.Appendf(w.line, `{"ph":"M","name":%q,"pid":%d,"tid":%d,"args":{%q:%s}}`, what, n.process, tid, key, value)
	w.write()
}

// threadsMax bounds the threads of one name. Operations beyond them share the last one.
const threadsMax = 64

// thread returns the ID of a thread that is free from the start of an operation on, which occupies it until end, and sets both so that slices of a thread
// do not touch and are not empty: an arrow belongs to the slice at its time. An operation with approximate times may start later than it says, and does
// not wait for room on another thread.
func (w *Writer) thread(n *node, name string, o *trace.Operation, end *time.Time) int {
	list := n.threads[name]
	at := len(list)
	for i, t := range list {
		early := t.until.Sub(o.Start)
		if early < gap || o.Approximate && early < approximation || i == threadsMax-1 {
			o.Start = o.Start.Add(max(0, early+gap))
			at = i
			break
		}
	}
	if least := o.Start.Add(thinnest); end.Before(least) {
		*end = least
	}
	if at < len(list) {
		list[at].until = *end
		return list[at].tid
	}
	if n.tids++; n.tids == n.process { // It would be the main thread.
		n.tids++
	}
	tid := n.tids
	n.threads[name] = append(list, thread{tid, *end})
	if len(list) > 0 {
		name = fmt.Sprintf("%s (%d)", name, len(list)+1)
	}
	w.meta("thread_name", n, tid, "name", text(name))
	return tid
}

// whole returns a time in whole microseconds of the file.
func (w *Writer) whole(t time.Time) time.Time {
	return w.begin.Add(t.Sub(w.begin).Truncate(time.Microsecond))
}

// slice writes an operation, perhaps with its details and a wait inside of it, and the end of its arrow. A long collective has whole
// microseconds, within its real time.
func (w *Writer) slice(n *node, o *trace.Operation, end time.Time, waited *wait, isDetailed bool) {
	thread := "communicator " + o.Comm
	switch {
	case o.Op == "call":
		thread = "calls"
	case o.Seq == 0:
		thread = "messages of " + thread
	}
	w.written++
	tid := w.thread(n, thread, o, &end)
	if o.Seq > 0 && end.Sub(o.Start) >= time.Millisecond {
		o.Start, end = w.whole(o.Start.Add(time.Microsecond-1)), w.whole(end)
	}
	w.begins(n, tid, title(o), o.Start, end)
	if isDetailed {
		w.args(o)
	}
	w.line = append(w.line, '}')
	w.write()
	if waited != nil && w.whole(waited.until).After(o.Start) { // The thread may have moved the start.
		w.begins(n, tid, "waits for rank "+strconv.Itoa(waited.on.rank), o.Start, w.whole(waited.until))
		w.line = append(w.line, '}')
		w.write()
	}
	w.arrow(n, tid, o, end)
}

// awaited writes the time in which ranks have waited for a node to begin a collective.
func (w *Writer) awaited(n *node, title string, begin, end time.Time, ranks int) {
	o := trace.Operation{Start: begin}
	tid := w.thread(n, "awaited", &o, &end)
	w.begins(n, tid, fmt.Sprintf("%d ranks wait for %s", ranks, title), o.Start, end)
	w.line = append(w.line, '}')
	w.write()
}

// title is the name of a slice.
func title(o *trace.Operation) string {
	switch {
	case o.Seq > 0:
		return o.Op + " #" + strconv.FormatUint(o.Seq, 10)
	case o.Op == "call":
		return o.Function
	case o.Peer < 0:
		return o.Op
	}
	preposition := " from rank "
	if o.Op == "send" {
		preposition = " to rank "
	}
	return o.Op + preposition + strconv.Itoa(o.Peer)
}

// event begins a line for an event.
func (w *Writer) event() {
	w.line = w.line[:0]
	if !w.any {
		w.line = append(w.line, `{"traceEvents":[`...)
		w.any = true
	} else {
		w.line = append(w.line, ',')
	}
	w.line = append(w.line, '\n')
}

func (w *Writer) write() { _, _ = w.out.Write(w.line) } // The error stays until Flush.

// begins begins the line of a slice, without its closing brace.
func (w *Writer) begins(n *node, tid int, name string, start, end time.Time) {
	w.event()
	w.line = append(w.line, `{"ph":"X","pid":`...)
	w.line = strconv.AppendInt(w.line, int64(n.process), 10)
	w.line = append(w.line, `,"tid":`...)
	w.line = strconv.AppendInt(w.line, int64(tid), 10)
	w.line = append(w.line, `,"ts":`...)
	w.line = micros(w.line, start.Sub(w.begin))
	w.line = append(w.line, `,"dur":`...)
	w.line = micros(w.line, end.Sub(start))
	w.line = append(w.line, `,"name":`...)
	w.line = append(w.line, text(name)...)
}

// micros appends a duration in microseconds.
func micros(b []byte, d time.Duration) []byte {
	b = strconv.AppendInt(b, int64(d/time.Microsecond), 10)
	if rest := d % time.Microsecond; rest > 0 {
		b = append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
	}
	return b
}

// args appends the details of an operation.
func (w *Writer) args(o *trace.Operation) {
	first := true
	add := func(key, value string) {
		if first {
			w.line = append(w.line, `,"args":{`...)
		} else {
			w.line = append(w.line, ',')
		}
		first = false
		w.line = append(w.line, '"')
		w.line = append(w.line, key...)
		w.line = append(w.line, `":`...)
		w.line = append(w.line, value...)
	}
	number := func(key string, n int64) {
		if n > 0 {
			add(key, strconv.FormatInt(n, 10))
		}
	}
	if o.Type != "" {
		add("vector", text(strconv.Itoa(o.Length)+" of "+o.Type))
	}
	if o.Reduce != "" {
		add("reduce", text(o.Reduce))
	}
	if o.Root >= 0 {
		add("root", strconv.Itoa(o.Root))
	}
	if o.Plan != "" {
		add("algorithm", text(o.Plan))
	}
	if o.Seq > 0 || o.Outcome != trace.OK {
		number("bytes", o.Bytes)
	}
	number("rounds", int64(o.Rounds))
	if o.Seq == 0 && o.Tag != 0 {
		add("tag", strconv.FormatInt(o.Tag, 10))
	}
	if o.Purpose != "" {
		add("purpose", text(o.Purpose))
	}
	if o.Outcome != trace.OK {
		add("outcome", text(cmp.Or(o.Outcome, "running")))
		number("round", int64(o.Round))
		if len(o.Waiting) > 0 {
			list, _ := json.Marshal(o.Waiting)
			add("waits_for_ranks", string(list))
		}
	}
	if o.Approximate {
		add("times", `"approximate"`)
	}
	if !first {
		w.line = append(w.line, '}')
	}
}

// idShift makes an ID that JavaScript can represent exactly.
const idShift = 12

// arrow writes the end of an arrow in the slice of a send or a receive. Both ends have the same ID.
func (w *Writer) arrow(n *node, tid int, o *trace.Operation, end time.Time) {
	if o.Order == 0 || o.Peer < 0 || o.Outcome != trace.OK || o.Epoch != n.epoch {
		return
	}
	from, to, phase, at := n.rank, o.Peer, `{"ph":"s"`, o.Start.Add(thinnest/2)
	if o.Op != "send" {
		from, to, phase, at = o.Peer, n.rank, `{"ph":"f","bp":"e"`, end.Add(-thinnest/2)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d %d %d", o.Comm, from, to, o.Order)
	w.event()
	w.line = append(w.line, phase...)
	w.line = append(w.line, `,"cat":"message","name":"message","id":`...)
	w.line = strconv.AppendUint(w.line, h.Sum64()>>idShift, 10)
	w.line = append(w.line, `,"pid":`...)
	w.line = strconv.AppendInt(w.line, int64(n.process), 10)
	w.line = append(w.line, `,"tid":`...)
	w.line = strconv.AppendInt(w.line, int64(tid), 10)
	w.line = append(w.line, `,"ts":`...)
	w.line = micros(w.line, at.Sub(w.begin))
	w.line = append(w.line, '}')
	w.write()
}

// text encodes a string as JSON.
func text(s string) string {
	isPlain := func(c byte) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' }
	for i := range len(s) {
		if !isPlain(s[i]) {
			b, err := json.Marshal(s)
			if err != nil {
				panic("timeline: " + err.Error()) // JSON can encode every string.
			}
			return string(b)
		}
	}
	return `"` + s + `"`
}
