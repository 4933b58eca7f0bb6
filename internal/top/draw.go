package top

import (
	"fmt"
	"image/color"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/dustin/go-humanize"

	"github.com/nexar-go/nexar/internal/page/model"
)

// Styles use the colors of the terminal, so that they fit its background. Words say the same as colors.

func bold() lipgloss.Style   { return lipgloss.NewStyle().Bold(true) }
func dim() lipgloss.Style    { return lipgloss.NewStyle().Faint(true) }
func marked() lipgloss.Style { return lipgloss.NewStyle().Reverse(true) }

// styleOf returns the style of a level.
func styleOf(l model.Level) lipgloss.Style {
	c := map[model.Level]color.Color{model.Forming: lipgloss.Cyan, model.Slow: lipgloss.Yellow, model.Broken: lipgloss.Red}[l]
	if c == nil {
		return lipgloss.NewStyle()
	}
	return lipgloss.NewStyle().Foreground(c)
}

// View implements [tea.Model].
func (s *screen) View() tea.View {
	v := tea.NewView(strings.Join(s.draw(), "\n"))
	v.AltScreen, v.WindowTitle = true, "nexar top"
	return v
}

// draw returns the lines of the screen, none wider than it and no more than its height.
func (s *screen) draw() []string {
	head := s.head()
	body := s.lines()
	if s.help {
		body = helpLines()
	}
	foot := dim().Render(s.cut("Tab or 1–5 section   ↑↓ line   ←→ fold   ? help   q quit"))
	room := max(1, s.height-len(head)-1)
	s.first = max(0, min(s.first, len(body)-room))
	if !s.help {
		s.first = max(min(s.first, s.line), s.line-room+1)
	}
	list := head
	for i := s.first; i < min(len(body), s.first+room); i++ {
		text, style := s.cut(body[i].text), body[i].style
		if i == s.line && !s.help && s.section != calls {
			style = style.Inherit(marked())
		}
		list = append(list, style.Render(text))
	}
	for len(list) < s.height-1 {
		list = append(list, "")
	}
	return append(list[:min(len(list), max(0, s.height-1))], foot)
}

// room returns the number of lines of a section that are visible.
func (s *screen) room() int { return max(1, s.height-len(s.head())-1) }

// cut shortens a text, which may have styles, to the width of the screen.
func (s *screen) cut(text string) string { return ansi.Truncate(text, s.width, "…") }

// sentenceLines bounds the lines of the sentence on top.
const sentenceLines = 4

// head returns the sentence, the sums and the names of the sections.
func (s *screen) head() (list []string) {
	v := &s.view
	if !s.any {
		return []string{bold().Render(s.cut("Asking the seed …")), "", ""}
	}
	wrapped := strings.Split(lipgloss.Wrap(v.Sentence, s.width, ""), "\n")
	if len(wrapped) > sentenceLines {
		wrapped = wrapped[:sentenceLines]
		wrapped[sentenceLines-1] += " …"
	}
	for _, line := range wrapped {
		list = append(list, styleOf(v.Level).Bold(true).Render(s.cut(line)))
	}
	if v.Problem != "" {
		list = append(list, dim().Render(s.cut(fmt.Sprintf("for %s: %s", since(s.now, v.Silent), v.Problem))))
	}
	for _, more := range v.More[:min(len(v.More), 2)] {
		list = append(list, dim().Render(s.cut(more)))
	}
	sums := []string{fmt.Sprintf("%d of %d ranks", v.Joined, max(v.World, v.Joined))}
	if v.Epoch > 0 {
		sums = append(sums, "epoch "+strconv.FormatUint(v.Epoch, 10))
	}
	if v.Waiting > 0 {
		sums = append(sums, fmt.Sprintf("%d wait to join", v.Waiting))
	}
	if v.Rate >= 0 {
		sums = append(sums, perSecond(v.Rate)+" "+spark(v.Rates, sparkWidth))
	}
	if v.Memory > 0 {
		sums = append(sums, "heap "+humanize.IBytes(v.Memory))
	}
	return append(list, s.cut(strings.Join(sums, " · ")), s.tabs())
}

// tabs returns the names of the sections.
func (s *screen) tabs() string {
	v := &s.view
	names := []string{"ranks", fmt.Sprintf("waits (%d)", len(v.Waits)), "operations", fmt.Sprintf("links (%d)", s.linked()), fmt.Sprintf("history (%d)", len(v.Changes))}
	var parts []string
	for i, name := range names {
		name = fmt.Sprintf(" %d %s ", i+1, name)
		if i == s.section {
			name = marked().Render(name)
		}
		parts = append(parts, name)
	}
	return s.cut(strings.Join(parts, ""))
}

func (s *screen) linked() (n int) {
	for _, c := range s.view.Classes {
		n += c.Links
	}
	return n
}

// A line is a line of a section.
type line struct {
	text  string
	style lipgloss.Style
	host  string // of a line of section ranks
	rank  bool   // it is a rank of the host
}

// lines returns the lines of the section.
func (s *screen) lines() []line {
	switch s.section {
	case waits:
		return s.waitLines()
	case calls:
		return s.callLines()
	case links:
		return s.linkLines()
	case changes:
		return s.changeLines()
	}
	return s.rankLines()
}

// none is the text of an empty section.
func none(text string) []line { return []line{{text: text, style: dim()}} }

func (s *screen) rankLines() (list []line) {
	for i := range s.view.Hosts {
		h := &s.view.Hosts[i]
		mark, folded := "▾", s.isFolded(h)
		if folded {
			mark = "▸"
		}
		text := fmt.Sprintf("%s %s: %s", mark, h.Name, h.Words)
		if h.Rate > 0 {
			text += ", " + perSecond(h.Rate)
		}
		list = append(list, line{text, styleOf(h.Level).Bold(true), h.Name, false})
		if folded {
			continue
		}
		for j := range h.Ranks {
			list = append(list, line{s.rankLine(&h.Ranks[j]), s.rankStyle(&h.Ranks[j]), h.Name, true})
		}
	}
	if len(list) == 0 {
		return none("no ranks")
	}
	return list
}

// rankStyle is that of the state of a rank.
func (s *screen) rankStyle(r *model.Rank) lipgloss.Style {
	switch r.State {
	case model.Late:
		return styleOf(model.Slow)
	case model.Deadlock, model.NoAnswer:
		return styleOf(model.Broken)
	case model.Behind, model.Joining:
		return styleOf(model.Forming)
	}
	return lipgloss.NewStyle()
}

func (s *screen) rankLine(r *model.Rank) string {
	number := "–"
	if r.Rank >= 0 {
		number = strconv.Itoa(r.Rank)
	}
	what := r.Call
	if !r.Busy && what != "" {
		what = "last: " + what
	}
	if r.For != "" {
		what += ", waits for " + r.For
	}
	if r.Round != "" && r.Busy {
		what += ", round " + r.Round
	}
	if r.Site != "" {
		what += ", at " + r.Site
	}
	if r.Words != "" {
		what = strings.TrimPrefix(r.Words+"; "+what, "; ")
	}
	return fmt.Sprintf("%5s  %-9s %6s  %s", number, r.State, since(s.now, r.Since), strings.TrimSuffix(what, "; "))
}

func (s *screen) waitLines() (list []line) {
	for _, w := range s.view.Waits {
		list = append(list, line{text: fmt.Sprintf("%6s  %s wait in %s for %s", since(s.now, w.Since), w.Who, w.Call, w.For), style: styleOf(w.Level)})
	}
	if list == nil {
		return none("no rank waits for another")
	}
	return list
}

// callLines draws the newest call as a timeline: a bar for each rank.
func (s *screen) callLines() (list []line) {
	if len(s.view.Calls) == 0 {
		return none("no collective has been seen")
	}
	for i := range s.view.Calls {
		c := &s.view.Calls[i]
		list = append(list, line{text: fmt.Sprintf("%s, %s", c.Title, took(c.Length)), style: bold()})
		if c.Words != "" {
			list = append(list, line{text: "  " + c.Words, style: dim()})
		}
		for _, p := range c.Spans {
			list = append(list, line{text: fmt.Sprintf("%5d  %s", p.Rank, bar(p, c.Length, max(10, s.width-22))) + " " + took(p.Length)})
		}
		if c.Left > 0 {
			list = append(list, line{text: fmt.Sprintf("       and %d ranks more", c.Left), style: dim()})
		}
	}
	return list
}

// bar draws the time of a rank in a call of a length.
func bar(p model.Span, length time.Duration, width int) string {
	if length <= 0 {
		length = 1
	}
	cells := func(d time.Duration) int { return int(float64(width) * float64(d) / float64(length)) }
	from := min(width-1, cells(p.Start))
	n := max(1, min(width-from, cells(p.Length)))
	return strings.Repeat("·", from) + strings.Repeat("█", n) + strings.Repeat("·", width-from-n)
}

func (s *screen) linkLines() (list []line) {
	for _, c := range s.view.Classes {
		text := fmt.Sprintf("%s: %d links", c.Name, c.Links)
		if c.Rate > 0 {
			text += ", " + perSecond(c.Rate)
		}
		if c.Stalled > 0 {
			text += fmt.Sprintf(", %d stalled", c.Stalled)
		}
		list = append(list, line{text: text, style: bold()})
	}
	for _, l := range s.view.Links {
		text := fmt.Sprintf("  rank %d to %d  %-8s %12s  %s sent", l.From, l.To, l.Class, perSecond(max(0, l.Rate)), humanize.IBytes(l.Sent))
		if l.Notes != "" {
			text += "  " + l.Notes
		}
		list = append(list, line{text: text})
	}
	if list == nil {
		return none("no links are known")
	}
	return list
}

func (s *screen) changeLines() (list []line) {
	for _, c := range s.view.Changes {
		list = append(list, line{text: fmt.Sprintf("%s  epoch %-4d %s", c.Time.Format("15:04:05"), c.Epoch, c.Words), style: styleOf(c.Level)})
	}
	if list == nil {
		return none("the world has not changed since it has formed")
	}
	return list
}

func helpLines() (list []line) {
	for _, text := range []string{
		"Tab, Shift+Tab, 1–5  another section",
		"↑ ↓ k j              another line",
		"Page Up, Page Down   the lines before and after",
		"Home, End            the first and the last line",
		"→ ← Enter            show or hide the ranks of a host",
		"?                    this help",
		"q, Ctrl-C            quit",
		"",
		"The first lines say what the cluster does. A rank is late if others wait for it and",
		"it waits for none. Ranks in a deadlock wait for each other.",
	} {
		list = append(list, line{text: text})
	}
	return list
}

// since is the time from then to now, or "" if it is not known.
func since(now, then time.Time) string {
	if then.IsZero() {
		return ""
	}
	return took(max(0, now.Sub(then)))
}

// took is a duration in at most six characters.
func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 100*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 100*time.Minute:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f h", d.Hours())
}

func perSecond(bytes float64) string { return humanize.Bytes(uint64(bytes)) + "/s" }

// sparkWidth is the width of the throughput over time.
const sparkWidth = 20

// spark draws the last rates, the highest as a full character.
func spark(rates []model.Rate, width int) string {
	rates = rates[max(0, len(rates)-width):]
	highest := 1.0
	for _, r := range rates {
		highest = max(highest, r.Bytes)
	}
	var b strings.Builder
	steps := []rune("▁▂▃▄▅▆▇█")
	for _, r := range rates {
		b.WriteRune(steps[min(len(steps)-1, int(r.Bytes/highest*float64(len(steps)-1)+0.5))])
	}
	return b.String()
}
