package top

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/nexar-go/nexar/internal/page/model"
)

// The sections of the screen, which Tab and digits select.
const (
	ranks = iota
	waits
	calls
	links
	changes
	sections
)

// A screen draws the newest view, in the section and at the line that keys have selected.
type screen struct {
	view          model.View
	any           bool // there is a view
	width, height int
	section       int
	line          int             // of the selected line in the section
	first         int             // of the first line of the section that is visible
	folded        map[string]bool // hosts by name, where the user has chosen
	now           time.Time
	help          bool
}

// aSecond says that times have changed.
type aSecond time.Time

func nextSecond() tea.Cmd {
	return tea.Tick(time.Second, func(t time.Time) tea.Msg { return aSecond(t) })
}

// Init implements [tea.Model].
func (s *screen) Init() tea.Cmd {
	s.now = time.Now()
	return nextSecond()
}

// Update implements [tea.Model].
func (s *screen) Update(m tea.Msg) (tea.Model, tea.Cmd) {
	switch m := m.(type) {
	case model.View:
		s.view, s.any, s.now = m, true, time.Now()
	case aSecond:
		s.now = time.Time(m)
		return s, nextSecond()
	case tea.WindowSizeMsg:
		s.width, s.height = m.Width, m.Height
	case tea.KeyPressMsg:
		return s, s.key(m.String())
	}
	return s, nil
}

// key carries out a key.
func (s *screen) key(name string) tea.Cmd {
	switch name {
	case "q", "ctrl+c":
		return tea.Quit
	case "esc":
		if !s.help {
			return tea.Quit
		}
		s.help = false
	case "?", "h":
		s.help = !s.help
	case "tab", "shift+tab":
		step := 1
		if name == "shift+tab" {
			step = sections - 1
		}
		s.enter((s.section + step) % sections)
	case "1", "2", "3", "4", "5":
		s.enter(int(name[0] - '1'))
	case "up", "k":
		s.line--
	case "down", "j":
		s.line++
	case "pgup":
		s.line -= s.room()
	case "pgdown", "space":
		s.line += s.room()
	case "home", "g":
		s.line = 0
	case "end", "G":
		s.line = len(s.lines()) - 1
	case "left", "right", "enter":
		s.fold(name)
	}
	s.line = max(0, min(s.line, len(s.lines())-1))
	return nil
}

func (s *screen) enter(section int) { s.section, s.line, s.first = section, 0, 0 }

// fold folds or unfolds the host of the selected line.
func (s *screen) fold(key string) {
	list := s.lines()
	if s.section != ranks || s.line >= len(list) {
		return
	}
	host := list[s.line].host
	for i := range s.view.Hosts {
		h := &s.view.Hosts[i]
		if h.Name != host {
			continue
		}
		fold := key == "left" || key == "enter" && !s.isFolded(h)
		s.folded[host] = fold
		if fold { // The line of the host is the nearest one that stays.
			for s.line > 0 && list[s.line].rank {
				s.line--
			}
		}
	}
}

// openRanks bounds the ranks of clusters that are unfolded at first.
const openRanks = 32

// isFolded reports whether the ranks of a host are hidden: as the user has chosen, or if there are many and nothing is wrong with them.
func (s *screen) isFolded(h *model.Host) bool {
	if folded, chosen := s.folded[h.Name]; chosen {
		return folded
	}
	all := 0
	for i := range s.view.Hosts {
		all += len(s.view.Hosts[i].Ranks)
	}
	return all > openRanks && h.Level == model.Calm
}
