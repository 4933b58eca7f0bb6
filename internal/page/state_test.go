package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/nexar-go/nexar/internal/page/model"
)

// A browser has the variables of the script of the page.
type browser struct {
	version uint64
	parts   map[string]json.RawMessage
}

// read takes the newest message.
func (b *browser) read(t *testing.T, s *state) {
	t.Helper()
	m, _ := s.since(b.version)
	if m.to == 0 {
		return
	}
	var body struct {
		From  uint64
		Parts map[string]json.RawMessage
	}
	if err := json.Unmarshal(fmt.Appendf(nil, "{%s}", m.data), &body); err != nil {
		t.Fatalf("%s: %v", m.data, err)
	}
	if body.From == 0 {
		b.parts = make(map[string]json.RawMessage)
	}
	maps.Copy(b.parts, body.Parts)
	b.version = m.to
}

// TestStateOfBrowsers: browsers that read each message, some of them, or one have the same parts as the newest view, and no others.
func TestStateOfBrowsers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := newState()
	browsers := make([]browser, 5)
	for step := range 500 {
		v := model.View{Sentence: fmt.Sprint("sentence ", r.IntN(2)), Rates: make([]model.Rate, r.IntN(3)), Calls: make([]model.Call, r.IntN(3))}
		for h := range 1 + r.IntN(3) {
			host := model.Host{Name: fmt.Sprint("host ", h)}
			for i := range 1 + r.IntN(4) {
				host.Ranks = append(host.Ranks, model.Rank{Node: fmt.Sprint(h, i), Rank: h*10 + i, Words: fmt.Sprint(r.IntN(2))})
			}
			v.Hosts = append(v.Hosts, host)
		}
		s.show(v)
		want := browser{}
		want.read(t, s)
		for i := range browsers {
			if r.IntN(i+1) > 0 {
				continue
			}
			if browsers[i].read(t, s); !reflect.DeepEqual(browsers[i].parts, want.parts) {
				t.Fatalf("step %d: a browser has %s, want %s", step, browsers[i].parts, want.parts)
			}
		}
		late := browser{version: uint64(r.IntN(2000))} // of another run of the page
		if late.version > s.version {
			if late.read(t, s); !reflect.DeepEqual(late.parts, want.parts) {
				t.Fatalf("step %d: a browser with version %d has %s, want %s", step, late.version, late.parts, want.parts)
			}
		}
	}
}

// TestStateSendsDifferences: a message has only changed parts.
func TestStateSendsDifferences(t *testing.T) {
	v := model.View{Hosts: []model.Host{{Name: "a", Ranks: []model.Rank{{Node: "1"}, {Node: "2"}}}}}
	s := newState()
	s.show(v)
	b := browser{}
	b.read(t, s)
	v.Hosts[0].Ranks[1].Words = "waits"
	s.show(v)
	m, _ := s.since(b.version)
	if want := fmt.Sprintf(`"from":1,"parts":{"r2":%s}`, s.part("r2")); string(m.data) != want {
		t.Errorf("the message is %s, want %s", m.data, want)
	}
	if m, _ := s.since(m.to); m.to != 0 {
		t.Errorf("a browser with the newest version gets %s", m.data)
	}
}

// TestStateOfTwoBrowsers: a browser gets all parts that it lacks, also after one that lacks fewer.
func TestStateOfTwoBrowsers(t *testing.T) {
	s := newState()
	var one, other browser
	for _, sentence := range []string{"a", "b"} {
		s.show(model.View{Sentence: sentence, Hosts: []model.Host{{Name: "host"}}})
		one.read(t, s)
	}
	if other.read(t, s); !reflect.DeepEqual(one.parts, other.parts) {
		t.Errorf("the second browser has %s, want %s", other.parts, one.parts)
	}
}
