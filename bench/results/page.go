package results

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WritePage writes the page about all settings to the file name, and a drawing of each setting to its folder "results".
func WritePage(name string, files []*File) error {
	classify(files)
	dir := filepath.Join(filepath.Dir(name), drawings)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		svg, err := f.Draw()
		if err != nil {
			return fmt.Errorf("%s: %w", f.Header.Setting, err)
		}
		if err := os.WriteFile(filepath.Join(dir, f.Header.Setting+".svg"), svg, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(name, []byte(Page(files)), 0o644)
}

// drawings is the folder of the drawings, beside the page.
const drawings = "results"

// Page returns the text of the page, in Markdown.
func Page(files []*File) string {
	classify(files)
	var b strings.Builder
	b.WriteString(introduction + machines(files) + "\n" + legend + summary(files))
	for _, f := range files {
		f.section(&b)
	}
	b.WriteString(alone)
	return b.String()
}

const introduction = `# Comparison with other systems

nexar for Go beside the strongest peers, in turn on one machine. "make bench-install bench-peers" repeats everything and writes this
page and the raw data; [bench/README.md](../bench/README.md) describes the method.

`

const legend = `Each cell is **the time of the best peer ÷ the time of nexar**: above 1 nexar is faster. "near" and "far" are the states of the processors
during a turn, told by the round trip of a cache line between two of them; only turns in the same state are compared.
**Bold** means lost and ▼ a row with a loss. ≈ means that the quartiles over the turns overlap, or that there were fewer than
three turns. ° means fewer than 100 samples (10 from 8 MiB on). – means not measured.

`

const alone = `## nexar alone

Each file names the command that repeats it: the time until survivors
continue after ranks are killed ([survivals](results/survivals.txt)), cuts between living hosts
([cuts](results/cuts.txt)) and in simulated worlds ([cut-worlds](results/cut-worlds.txt)),
nodes that become neighbors and cease to be ([neighbor-worlds](results/neighbor-worlds.txt)), relays that die while routes change ([relay-worlds](results/relay-worlds.txt)), the time of other changes of a world
([changes](results/changes.txt)), also while its seeds are killed ([seeds](results/seeds.txt)) or stopped for a while ([pauses](results/pauses.txt)), the time until
a kill is detected ([kills](results/kills.txt), [in a sparse topology](results/kills-sparse.txt)), the start and the
recovery of worlds of 128 to 1,024 nodes ([thousand](results/thousand.txt)), the rank that errors name
([blame](results/blame.txt)), a search for faults in the lanes of a link ([lanes](results/lanes.txt)), the memory, threads and processor time of a rank ([footprint](results/footprint.txt)), and what
was tried with RDMA ([rdma](results/rdma.txt)) and on a GPU ([gpu](results/gpu.txt), also in turn with torch.distributed).
`

// machines describes the machines, the software and what is missing, each once.
func machines(files []*File) string {
	var b strings.Builder
	var told []string
	software := make(map[string]string)
	for _, f := range files {
		maps.Copy(software, f.Header.Software)
		m := f.Header.Machine
		text := fmt.Sprintf("%s, %d processors, %s of memory, %s.", m.CPU, m.Cores, m.Memory, m.Kernel)
		if m.Note != "" {
			text += " " + m.Note
		}
		if !slices.Contains(told, text) {
			told = append(told, text)
		}
		for _, s := range f.Header.Systems {
			if !s.Ours && s.About != "" {
				software[strings.Join(strings.Fields(s.About), " ")] = ""
			}
			if text := fmt.Sprintf("**Missing: %s**, %s", s.Label, s.Missing); s.Missing != "" && !slices.Contains(told, text) {
				told = append(told, text)
			}
		}
	}
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(software)) {
		versions = append(versions, strings.TrimSpace(name+" "+software[name]))
	}
	fmt.Fprintf(&b, "%s\n\n%s.\n", strings.Join(told, "\n\n"), strings.Join(versions, " · "))
	return b.String()
}

// summary returns the table of all settings and systems of nexar.
func summary(files []*File) string {
	var b strings.Builder
	b.WriteString("| geometric mean over all operations and sizes | nexar over | near | faster, level, slower | far | faster, level, slower |\n|---|---|--:|--:|--:|--:|\n")
	for _, f := range files {
		states, _ := f.States()
		for _, ours := range f.Header.Systems {
			if !ours.Ours {
				continue
			}
			title := f.Header.Title
			if f.Header.Busy > busyMax {
				title += " (busy machine: a trial)"
			}
			fmt.Fprintf(&b, "| %s | %s |", title, strings.TrimPrefix(ours.Label, "nexar "))
			for _, s := range []State{Near, Far} {
				t := f.Tally(ours, f.Ops(), false, s)
				if t.Points() == 0 || !slices.ContainsFunc(states, func(c Census) bool { return c.State == s }) {
					b.WriteString(" – | – |")
					continue
				}
				fmt.Fprintf(&b, " %s | %d, %d, %d |", bold(t.Mean), t.Faster, t.Level, t.Slower)
			}
			b.WriteString("\n")
		}
	}
	return b.String() + "\n"
}

func bold(ratio float64) string {
	if ratio < 1 {
		return "**" + Ratio(ratio) + "**"
	}
	return Ratio(ratio)
}

// busyMax is the number of processors that other work may use.
const busyMax = 0.2

// section writes the section of one setting.
func (f *File) section(b *strings.Builder) {
	h := f.Header
	states, turns := f.States()
	fmt.Fprintf(b, "## %s\n\n", h.Title)
	if h.Busy > busyMax {
		fmt.Fprintf(b, "**Other work used %.1f of %d processors: a trial of the programs, which says nothing about their speed.**\n\n", h.Busy, h.Machine.Cores)
	}
	fmt.Fprintf(b, "Rounds: %d, on %s. ", h.Rounds, h.Day)
	var parts []string
	left := turns
	for _, s := range states {
		parts = append(parts, fmt.Sprintf("%s: %.2f µs, %d turns", s.State, s.RoundTrip, s.Turns))
		left -= s.Turns
	}
	fmt.Fprintf(b, "Processors %s", strings.Join(parts, "; "))
	if left > 0 {
		fmt.Fprintf(b, "; %d turns in which they moved, or in a rare state, do not count", left)
	}
	fmt.Fprintf(b, ".\n\n![%s: time over size](%s/%s.svg)\n\n", h.Title, drawings, h.Setting)
	for _, ours := range h.Systems {
		if !ours.Ours {
			continue
		}
		fmt.Fprintf(b, "%s, vectors written anew before each iteration, %s:\n\n%s\n", ours.Label, names(states), f.Table(ours, false, states))
		fmt.Fprintf(b, "The same with untouched vectors:\n\n%s\n", f.Table(ours, true, states))
		break // The summary has the others.
	}
	b.WriteString(f.firstSecond(states))
	fmt.Fprintf(b, "<details><summary>times and commands</summary>\n\n%s\n", f.Times(false, states))
	for _, s := range h.Systems {
		if s.Command != "" {
			fmt.Fprintf(b, "%s (%s): `%s`\n\n", s.Label, s.About, s.Command)
		}
	}
	b.WriteString(f.failures() + "</details>\n\n")
}

func names(states []Census) string { return each(states, func(s State) string { return string(s) }) }

// firstSecond describes the messages of the first second after each start, or returns "" if they were not measured.
func (f *File) firstSecond(states []Census) string {
	var b strings.Builder
	for _, s := range f.Header.Systems {
		var starts []float64
		for _, e := range f.Entries {
			if e.System == s.Name && e.Op == FirstSecond && e.Failed == "" {
				starts = append(starts, e.US)
			}
		}
		if len(starts) == 0 {
			continue
		}
		slices.Sort(starts)
		later := each(states, func(state State) string {
			if c := f.Cell(s, Point{"send_recv", 8, false}, state); c.Good() {
				return Duration(c.US)
			}
			return "–"
		})
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s |\n", s.Label, len(starts), Duration(quantile(starts, 0.5)), Duration(starts[len(starts)-1]), later)
	}
	if b.Len() == 0 {
		return ""
	}
	return "Messages of 8 B in the first second after a start:\n\n| | starts | median | slowest start | later, " + names(states) + " |\n|---|--:|--:|--:|--:|\n" + b.String() + "\n"
}

// failureMax is the length up to which the page shows the reason of a failure. The raw data have all of it.
const failureMax = 200

// failures lists, for each system, operation and size, the first failure and the number of failures.
func (f *File) failures() string {
	type where struct {
		system, op string
		bytes      int
	}
	var order []where
	count, first := make(map[where]int), make(map[where]string)
	for _, e := range f.Entries {
		if e.Failed == "" {
			continue
		}
		at := where{e.System, e.Op, e.Bytes}
		if count[at]++; count[at] == 1 {
			order = append(order, at)
			first[at] = e.Failed
			if len(first[at]) > failureMax {
				first[at] = first[at][:failureMax] + " …"
			}
		}
	}
	var b strings.Builder
	for _, at := range order {
		fmt.Fprintf(&b, "- %s, %s %s: %s (%d×)\n", at.system, at.op, Size(at.bytes), first[at], count[at])
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	return b.String()
}
