package results

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WritePage writes the page about all settings, and beside the raw files a
// drawing of each. Raw is where these are, as seen from the page.
func WritePage(name, raw string, files []*File) error {
	dir := filepath.Join(filepath.Dir(name), raw)
	for _, f := range files {
		out, err := os.Create(filepath.Join(dir, f.Header.Setting+".svg"))
		if err != nil {
			return err
		}
		err = f.Draw(out)
		if err2 := out.Close(); err == nil {
			err = err2
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Header.Setting, err)
		}
	}
	return os.WriteFile(name, []byte(Page(raw, files)), 0o644)
}

// Page is the text of the page.
func Page(raw string, files []*File) string {
	var b strings.Builder
	b.WriteString(introduction)
	b.WriteString(machines(files))
	b.WriteString("\n## In short\n\n" + summaryText)
	for _, f := range files {
		b.WriteString(f.summary())
	}
	for _, f := range files {
		f.section(&b, raw)
	}
	return b.String()
}

const introduction = `# Measurements beside other systems

This page is written by ` + "`make bench-peers`" + `: the same work on nexar for Go, Open MPI, Gloo,
torch.distributed and the Rust crate nexar, in turn, on one machine. How it is measured, how to read
it and how to repeat a part of it is in [bench/README.md](../bench/README.md).

- A time is the median over the iterations of a rank, of that the slowest rank, of that the median
  over the rounds. Every iteration begins with a barrier of the system itself.
- **Bold** is the fastest system of a row. "Best other ÷ ours" above 1 means that ours is faster;
  "≈" that the quartiles over the rounds overlap, or that there were fewer than three, so that the
  difference may be chance.
- "One copy by each rank" is no system but a limit: every rank copies the vector within its memory
  once, all at the same time.
- Hosts are network namespaces of one machine, joined by a bridge.
- "fails" means an error or no end within the time limit, "wrong" a wrong result: such times do not
  count. "—" is what a system does not have.
- Only nexar encrypts, where the column says TLS or QUIC. The others do not.
- The ranks share the cores of one machine: with more ranks than cores the times tell at least as
  much about how a system waits as about how it sends. On a cluster they will differ.
- Results are checked once for each size, in every run, on every rank.

Measured of nexar alone, each by the command that it names: how long survivors take to go on when ranks
are killed ([survivals](results/survivals.txt)), and how long worlds take to change in other ways
([changes](results/changes.txt)), and while their seeds are killed as well ([seeds](results/seeds.txt)); how
soon a kill is noticed ([kills](results/kills.txt)); and what a rank costs ([footprint](results/footprint.txt)).

`

const summaryText = `How each of our columns stands to each other system over all operations and sizes of a setting:
how many times it was faster, level or slower, and the geometric mean of how many times faster it is.

`

// machines describes the machines of the files, each once.
func machines(files []*File) string {
	var b strings.Builder
	var told []Machine
	software := make(map[string]string)
	for _, f := range files {
		maps.Copy(software, f.Header.Software)
		delete(software, Commit) // which each section has
		m := f.Header.Machine
		if slices.Contains(told, m) {
			continue
		}
		told = append(told, m)
		fmt.Fprintf(&b, "Machine: %s, %d cores, %s of memory, %s.", m.CPU, m.Cores, m.Memory, m.Kernel)
		if m.Note != "" {
			fmt.Fprintf(&b, " %s", m.Note)
		}
		b.WriteString("\n\n")
	}
	b.WriteString("| program | version |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(software)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, software[name])
	}
	return b.String()
}

// summary is the tallies of one setting.
func (f *File) summary() string {
	var b strings.Builder
	for _, ours := range f.Header.Systems {
		for _, other := range f.Header.Systems {
			if !ours.Ours || other.Ours || other.Bound {
				continue
			}
			if t := f.Tally(ours, other); t.Points() > 0 {
				fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %s |\n", ours.Label, other.Label, t.Faster, t.Level, t.Slower, Times(t.Mean))
			}
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "**" + f.Header.Title + "**\n\n| | beside | faster | level | slower | mean |\n|---|---|--:|--:|--:|--:|\n" + b.String() + "\n"
}

// section is everything about one setting.
func (f *File) section(b *strings.Builder, raw string) {
	h := f.Header
	fmt.Fprintf(b, "## %s\n\n", h.Title)
	fmt.Fprintf(b, "Rounds: %d, on %s; at most %g s for an operation at one size in a round", h.Rounds, h.Day, h.Budget)
	if commit := h.Software[Commit]; commit != "" {
		fmt.Fprintf(b, " · %s %s", Commit, commit)
	}
	fmt.Fprintf(b, " · [raw numbers](%s/%s.jsonl)\n\n", raw, h.Setting)
	fmt.Fprintf(b, "![time over size](%s/%s.svg)\n\n", raw, h.Setting)
	for _, op := range f.Ops() {
		if len(f.Sizes(op)) > 0 {
			fmt.Fprintf(b, "### %s, %s\n\n%s\n", op, h.Title, f.Table(op))
		}
	}
	if notes := f.failures(); notes != "" {
		b.WriteString("What failed:\n\n" + notes + "\n")
	}
	b.WriteString("<details><summary>commands</summary>\n\n")
	for _, s := range h.Systems {
		if s.Command != "" {
			fmt.Fprintf(b, "%s (%s):\n\n    %s\n\n", s.Label, s.About, s.Command)
		}
	}
	b.WriteString("</details>\n\n")
}

// failures lists the first failure of each system, operation and size, and the number of failures.
func (f *File) failures() string {
	type where struct {
		op    string
		bytes int
	}
	var b strings.Builder
	for _, s := range f.Header.Systems {
		var order []where
		count, first := make(map[where]int), make(map[where]string)
		for _, e := range f.Entries {
			if e.System != s.Name || e.Failed == "" {
				continue
			}
			at := where{e.Op, e.Bytes}
			if count[at]++; count[at] == 1 {
				order = append(order, at)
				first[at] = strings.Join(strings.Fields(e.Failed), " ")
			}
		}
		for _, at := range order {
			what := s.Label
			if at.op != "" {
				what += fmt.Sprintf(", %s of %s", at.op, Size(at.bytes))
			}
			fmt.Fprintf(&b, "- %s: %s (%d×)\n", what, first[at], count[at])
		}
	}
	return b.String()
}
