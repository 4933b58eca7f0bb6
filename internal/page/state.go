package page

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"github.com/nexar-go/nexar/internal/page/model"
)

// A state has the parts of the newest view, as JSON, and for each the version of its last change. A browser that has a
// version gets the parts that have changed since, however many views it has missed. So a state needs as much memory as one view.
type state struct {
	mu      sync.Mutex
	version uint64
	whole   uint64 // the version of the last removal of parts: browsers with an earlier one get all parts
	parts   map[string]part
	names   []string      // of parts, sorted
	changed chan struct{} // closed with the next version
	last    message       // the newest message; many browsers need the same
}

type part struct {
	version uint64
	text    json.RawMessage
}

// A message brings a browser from a version to another. From 0 it has all parts.
type message struct {
	from, to uint64
	data     []byte        // members of a JSON object
	packed   func() []byte // the same as a part of a gzip file
}

// pack compresses a text to blocks of the format of gzip, which refer to nothing before them.
func pack(text []byte) []byte {
	var b bytes.Buffer
	z, _ := flate.NewWriter(&b, flate.BestSpeed) // It refuses only unknown levels.
	_, _ = z.Write(text)
	_ = z.Flush() // A Buffer has no errors.
	return b.Bytes()
}

func newState() *state { return &state{parts: make(map[string]part), changed: make(chan struct{})} }

// show takes a view.
func (s *state) show(v model.View) {
	parts := make(map[string]json.RawMessage)
	set := func(name string, value any) {
		text, err := json.Marshal(value)
		if err != nil { // A number that is not one: keep the part of the view before.
			text = s.part(name)
		}
		if text != nil {
			parts[name] = text
		}
	}
	for h := range v.Hosts {
		host := &v.Hosts[h]
		var ranks []string
		for i := range host.Ranks {
			name := "r" + host.Ranks[i].Node
			ranks = append(ranks, name)
			set(name, &host.Ranks[i])
		}
		set("h"+strconv.Itoa(h), struct {
			model.Host
			Ranks []string
		}{*host, ranks})
	}
	for i := range v.Calls {
		set("c"+strconv.Itoa(i), &v.Calls[i])
	}
	set("rates", v.Rates)
	set("waits", v.Waits)
	set("links", struct {
		Classes []model.Class
		Links   []model.Link
	}{v.Classes, v.Links})
	set("changes", v.Changes)
	hosts, calls := len(v.Hosts), len(v.Calls)
	v.Hosts, v.Calls, v.Rates, v.Waits, v.Links, v.Classes, v.Changes = nil, nil, nil, nil, nil, nil, nil
	set("cluster", struct {
		model.View
		Hosts, Calls int
	}{v, hosts, calls})
	s.replace(parts)
}

func (s *state) part(name string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts[name].text
}

func (s *state) replace(parts map[string]json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	for name := range s.parts {
		if _, ok := parts[name]; !ok {
			delete(s.parts, name)
			s.whole = s.version
		}
	}
	s.names = s.names[:0]
	for name, text := range parts {
		if old, ok := s.parts[name]; !ok || !bytes.Equal(old.text, text) {
			s.parts[name] = part{s.version, text}
		}
		s.names = append(s.names, name)
	}
	slices.Sort(s.names)
	close(s.changed)
	s.changed = make(chan struct{})
}

// next returns a channel that is closed with the next version.
func (s *state) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// since returns the message for a browser that has a version, if there is a later one, and a channel that is closed with the next.
func (s *state) since(version uint64) (message, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case version == s.version:
		return message{}, s.changed
	case version < s.whole || version > s.version:
		version = 0
	}
	if s.last.from == version && s.last.to == s.version {
		return s.last, s.changed
	}
	b := []byte(`"from":`)
	b = strconv.AppendUint(b, version, 10)
	b = append(b, `,"parts":{`...)
	comma := false
	for _, name := range s.names {
		if p := s.parts[name]; p.version > version {
			if comma {
				b = append(b, ',')
			}
			comma = true
			b = strconv.AppendQuote(b, name)
			b = append(b, ':')
			b = append(b, p.text...)
		}
	}
	b = append(b, '}')
	s.last = message{version, s.version, b, sync.OnceValue(func() []byte { return pack(b) })}
	return s.last, s.changed
}
