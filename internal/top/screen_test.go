//race:none it starts no goroutine

package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/nexar-go/nexar/internal/page/model"
)

// large is a view of hosts with 8 ranks each. One rank is late.
func large(hosts int) model.View {
	now := time.Now()
	v := model.View{
		Sentence: "All ranks work; rank 17 on host2 is 40 ms behind in all_reduce #812. " + strings.Repeat("A long sentence about ranks goes on. ", 20),
		More:     []string{"3 frames were dropped", "a", "b"}, Level: model.Slow, Time: now,
		Formed: true, Epoch: 3, World: 8 * hosts, Joined: 8 * hosts, Rate: 1.5e9, Memory: 5 << 30,
		Waits:   []model.Wait{{Who: "ranks 0–6", For: "rank 7", Call: "barrier #12", Since: now.Add(-14 * time.Second), Level: model.Broken}},
		Classes: []model.Class{{Name: "shm", Links: 56, Rate: 1e9}}, Links: []model.Link{{From: 0, To: 1, Class: "shm", Rate: 1e9, Sent: 1 << 40, Notes: "notes " + strings.Repeat("x", 100)}},
		Changes: []model.Change{{Time: now, Epoch: 2, Words: "rank 3 on hostc was lost: its process has ended", Level: model.Broken}},
		Calls:   []model.Call{{Key: "1", Title: "all_reduce #812 (2 × float32, sum)", Words: "rank 17 began last", Length: time.Second, Spans: []model.Span{{Rank: 0, Length: time.Second}, {Rank: 17, Start: 900 * time.Millisecond, Length: 100 * time.Millisecond}}, Left: 1000}},
	}
	for i := range 400 {
		v.Rates = append(v.Rates, model.Rate{Time: now, Bytes: float64(i)})
	}
	for h := range hosts {
		host := model.Host{Name: fmt.Sprintf("host%d", h), Words: "8 ranks work", Rate: 1e8}
		for r := range 8 {
			rank := model.Rank{Rank: 8*h + r, State: model.Works, Since: now, Call: "all_reduce #812 (1048576 × float32, sum)", Busy: true, For: "rank 17", Round: "1 of 2", Site: "train/main.go:42"}
			if rank.Rank == 17 {
				rank.State, rank.Words, host.Level, host.Words = model.Late, "1023 ranks wait for it", model.Slow, "rank 17 is late, 7 ranks work"
			}
			host.Ranks = append(host.Ranks, rank)
		}
		v.Hosts = append(v.Hosts, host)
	}
	return v
}

// newScreen is a screen with a view.
func newScreen(width, height int, v model.View) *screen {
	s := &screen{folded: make(map[string]bool)}
	s.Init()
	s.Update(tea.WindowSizeMsg{Width: width, Height: height})
	s.Update(v)
	return s
}

// shown returns the lines of the screen without styles.
func shown(s *screen) string { return ansi.Strip(strings.Join(s.draw(), "\n")) }

// press presses keys.
func press(s *screen, keys ...string) {
	for _, k := range keys {
		s.key(k)
	}
}

// TestFits: in every section and on terminals of all sizes, no line is wider than the terminal and there are no more lines than it has, after any keys.
func TestFits(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {20, 5}, {1, 1}, {40, 3}, {200, 80}} {
		for _, v := range []model.View{{}, large(1), large(128), (&model.Model{}).Fail("connection refused", time.Now())} {
			s := newScreen(size[0], size[1], v)
			for _, keys := range [][]string{{}, {"tab"}, {"end"}, {"3", "pgdown"}, {"4", "G"}, {"5"}, {"1", "end", "up", "left"}, {"home", "enter", "enter"}, {"?"}, {"down"}, {"esc"}} {
				press(s, keys...)
				list := s.draw()
				if len(list) > size[1] {
					t.Errorf("%v after %v: %d lines", size, keys, len(list))
				}
				for _, l := range list {
					if w := lipgloss.Width(l); w > size[0] {
						t.Errorf("%v after %v: a line has the width %d: %q", size, keys, w, ansi.Strip(l))
					}
				}
			}
		}
	}
}

// TestRanks: hosts without a problem are folded if there are many ranks, the host of a late rank is open, and keys open and fold hosts.
func TestRanks(t *testing.T) {
	s := newScreen(80, 400, large(128))
	text := shown(s)
	for _, want := range []string{"▸ host0: 8 ranks work", "▾ host2: rank 17 is late", "   17  late", "1023 ranks wait for it", "1024 of 1024 ranks · epoch 3 · 1.5 GB/s"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not shown:\n%s", want, text)
		}
	}
	if strings.Contains(text, "    0  works") {
		t.Error("the ranks of host0 are shown at first")
	}
	press(s, "right", "down", "down")
	if text := shown(s); !strings.Contains(text, "    0  works") {
		t.Errorf("the ranks of host0 are not shown after →:\n%s", text)
	}
	press(s, "left")
	if s.line != 0 || strings.Contains(shown(s), "    0  works") {
		t.Errorf("after ← on a rank line %d is selected, want its host, folded", s.line)
	}
}

// TestSections: each section shows its part of the view.
func TestSections(t *testing.T) {
	for key, want := range map[string]string{
		"2": "14 s  ranks 0–6 wait in barrier #12 for rank 7", "3": "all_reduce #812 (2 × float32, sum), 1 s", "4": "rank 0 to 1  shm", "5": "epoch 2    rank 3 on hostc was lost", "?": "Page Up, Page Down",
	} {
		s := newScreen(80, 40, large(2))
		press(s, key)
		if text := shown(s); !strings.Contains(text, want) {
			t.Errorf("after %s %q is not shown:\n%s", key, want, text)
		}
	}
}

// TestSilentSeed: when the seed does not answer, the screen says so, for how long and why, and keeps the last view.
func TestSilentSeed(t *testing.T) {
	v := large(1)
	v.Sentence, v.Problem, v.Silent = "The seed does not answer; below is its last answer.", "connection refused", time.Now().Add(-7*time.Second)
	text := shown(newScreen(80, 24, v))
	for _, want := range []string{"The seed does not answer", "for 7 s: connection refused", "host0"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not shown:\n%s", want, text)
		}
	}
}

// TestBar: the bar of a rank that began late begins late, and is never empty or longer than its room.
func TestBar(t *testing.T) {
	for _, p := range []model.Span{{}, {Start: time.Second}, {Start: time.Second / 2, Length: time.Hour}, {Length: time.Nanosecond}} {
		if b := bar(p, time.Second, 10); lipgloss.Width(b) != 10 || !strings.Contains(b, "█") {
			t.Errorf("%+v is %q", p, b)
		}
	}
	year := 365 * 24 * time.Hour
	if b := bar(model.Span{Start: 90 * year, Length: 90 * year}, 180*year, 10); b != "·····█████" {
		t.Errorf("of years: %q", b)
	}
	if b := bar(model.Span{Start: time.Second / 2, Length: time.Second / 2}, time.Second, 10); b != "·····█████" {
		t.Errorf("got %q", b)
	}
}
