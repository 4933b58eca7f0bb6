package match

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A waiting is a receive or a message of a model.
type waiting struct {
	source int
	tag    int64
	id     int
}

// takes reports whether receive r takes message m.
func (r waiting) takes(m waiting) bool {
	return (r.source == Any || r.source == m.source) && (r.tag == Any || r.tag == m.tag)
}

// A model is a simple Matcher: two lists, searched from the front.
type model struct {
	receives, messages []waiting
}

func (m *model) post(r waiting) (id int, ok bool) {
	i := slices.IndexFunc(m.messages, r.takes)
	if i < 0 {
		m.receives = append(m.receives, r)
		return 0, false
	}
	id = m.messages[i].id
	m.messages = slices.Delete(m.messages, i, i+1)
	return id, true
}

func (m *model) come(msg waiting) (id int, ok bool) {
	i := slices.IndexFunc(m.receives, func(r waiting) bool { return r.takes(msg) })
	if i < 0 {
		m.messages = append(m.messages, msg)
		return 0, false
	}
	id = m.receives[i].id
	m.receives = slices.Delete(m.receives, i, i+1)
	return id, true
}

func (m *model) remove(r waiting) bool {
	n := len(m.receives)
	m.receives = slices.DeleteFunc(m.receives, func(w waiting) bool { return w == r })
	return len(m.receives) < n
}

// clear removes the receives with a source and returns their ids, sorted.
func (m *model) clear(source int) (ids []int) {
	m.receives = slices.DeleteFunc(m.receives, func(r waiting) bool {
		if r.source == source {
			ids = append(ids, r.id)
		}
		return r.source == source
	})
	slices.Sort(ids)
	return ids
}

// A run is a Matcher and its model, which get the same calls.
type run struct {
	matcher Matcher[int, int]
	model   model
	ids     int
	posted  []waiting // all receives so far
}

// Few sources and tags, so that calls match.
var (
	exactSources = rapid.IntRange(0, 2)
	exactTags    = rapid.Int64Range(0, 2)
	anySources   = rapid.IntRange(Any, 2)
	anyTags      = rapid.Int64Range(Any, 2)
)

func (r *run) post(t *rapid.T) {
	r.ids++
	w := waiting{anySources.Draw(t, "source"), anyTags.Draw(t, "tag"), r.ids}
	r.posted = append(r.posted, w)
	got, ok := r.matcher.Post(w.source, w.tag, w.id)
	want, wantOK := r.model.post(w)
	if got != want || ok != wantOK {
		t.Fatalf("Post(%+v) = message %d, %v; want %d, %v", w, got, ok, want, wantOK)
	}
}

func (r *run) come(t *rapid.T) {
	r.ids++
	w := waiting{exactSources.Draw(t, "source"), exactTags.Draw(t, "tag"), r.ids}
	got, ok := r.matcher.Take(w.source, w.tag)
	if !ok {
		r.matcher.Keep(w.source, w.tag, w.id)
	}
	want, wantOK := r.model.come(w)
	if got != want || ok != wantOK {
		t.Fatalf("Take(%+v) = receive %d, %v; want %d, %v", w, got, ok, want, wantOK)
	}
}

func (r *run) peek(t *rapid.T) {
	w := waiting{anySources.Draw(t, "source"), anyTags.Draw(t, "tag"), 0}
	got, ok := r.matcher.Peek(w.source, w.tag)
	want := 0
	i := slices.IndexFunc(r.model.messages, w.takes)
	if i >= 0 {
		want = r.model.messages[i].id
	}
	if got != want || ok != (i >= 0) {
		t.Fatalf("Peek(%+v) = message %d, %v; want %d, %v", w, got, ok, want, i >= 0)
	}
}

func (r *run) remove(t *rapid.T) {
	if len(r.posted) == 0 {
		return
	}
	w := rapid.SampledFrom(r.posted).Draw(t, "receive")
	if got, want := r.matcher.Remove(w.source, w.tag, w.id), r.model.remove(w); got != want {
		t.Fatalf("Remove(%+v) = %v, want %v", w, got, want)
	}
}

func (r *run) clearReceives(t *rapid.T) {
	source := anySources.Draw(t, "source")
	got := r.matcher.ClearReceives(func(s int) bool { return s == source })
	slices.Sort(got)
	if want := r.model.clear(source); !slices.Equal(got, want) {
		t.Fatalf("ClearReceives(%d) = %v, want %v", source, got, want)
	}
}

func (r *run) clearMessages(t *rapid.T) {
	got := r.matcher.ClearMessages()
	var want []int
	for _, m := range r.model.messages {
		want = append(want, m.id)
	}
	r.model.messages = nil
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("ClearMessages() = %v, want %v", got, want)
	}
}

// A Matcher and its model return the same results for random calls.
func TestMatcherAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r run
		t.Repeat(map[string]func(*rapid.T){
			"post":  r.post,
			"post2": r.post, // twice as often as the rest
			"come":  r.come,
			"come2": r.come,
			"peek":  r.peek, "remove": r.remove,
			"clearReceives": r.clearReceives,
			"clearMessages": r.clearMessages,
			"": func(t *rapid.T) {
				if got, want := r.matcher.Queued(), len(r.model.messages); got != want {
					t.Fatalf("%d messages wait, want %d", got, want)
				}
			},
		})
	})
}
