package results

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WritePage writes the page about all settings to the file name, and a drawing of each setting to
// the directory of the raw files. Raw is that directory, relative to the page.
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

// Page returns the text of the page, in Markdown.
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

const introduction = `# Comparison with other systems

` + "`make bench-peers`" + ` writes this page. It runs the same work on nexar for Go, Open MPI, Gloo,
torch.distributed and the Rust crate nexar, in turn, on one machine.
[bench/README.md](../bench/README.md) describes the method, how to read the results, and how to repeat a part.

- The time of a rank is the median over its iterations, the time of a run the maximum over the ranks,
  and the time on this page the median over the rounds. Every iteration begins with a barrier of the
  measured system.
- **Bold** is the fastest system of a row. Where "best other ÷ ours" is above 1, ours is faster. "≈"
  means that the quartiles over the rounds overlap or that there were fewer than three rounds, so the
  difference is not significant.
- "One copy by each rank" is not a system but a bound: all ranks copy the vector within their own
  memory at the same time.
- Hosts are network namespaces of one machine, connected by a bridge.
- "fails" means an error or a timeout, "wrong" a wrong result; such times do not count. "—" means that
  the system does not have the operation or was not measured.
- Only nexar encrypts, where the column says TLS or QUIC.
- The ranks share the cores of one machine. With more ranks than cores, times depend on how a system
  waits at least as much as on how it sends. Times on a cluster differ.
- Every rank checks its results once for each size, in every run.

The following files measure nexar alone; each names the command that repeats it: the time until survivors
continue after ranks are killed ([survivals](results/survivals.txt)), cuts between living hosts
([cuts](results/cuts.txt)) and in simulated worlds ([cut-worlds](results/cut-worlds.txt)),
nodes that become neighbors and cease to be ([neighbor-worlds](results/neighbor-worlds.txt)), the time of other changes of a world
([changes](results/changes.txt)), also while its seeds are killed ([seeds](results/seeds.txt)) or stopped for a while ([pauses](results/pauses.txt)), the time until
a kill is detected ([kills](results/kills.txt), [in a sparse topology](results/kills-sparse.txt)), the start and the
recovery of worlds of 128 to 1,024 nodes ([thousand](results/thousand.txt)), the rank that errors name
([blame](results/blame.txt)), a search for faults in the lanes of a link ([lanes](results/lanes.txt)), the memory, threads and processor time of a rank ([footprint](results/footprint.txt)), and what
was tried with RDMA ([rdma](results/rdma.txt)) and on a GPU ([gpu](results/gpu.txt), also in turn with torch.distributed).

`

const summaryText = `For each nexar column and each other system: the number of operations and sizes at which nexar was
faster, level or slower, and the geometric mean of the ratios of the times, above 1 where nexar is faster.

`

// machines describes the machines and the software of the files, each once. Files may have different versions of a program.
func machines(files []*File) string {
	var b strings.Builder
	var told []Machine
	software := make(map[string][]string)
	for _, f := range files {
		for name, version := range f.Header.Software {
			if name != Commit && !slices.Contains(software[name], version) { // Each section names its own commit.
				software[name] = append(software[name], version)
			}
		}
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
		fmt.Fprintf(&b, "| %s | %s |\n", name, strings.Join(software[name], "; "))
	}
	return b.String()
}

// summary returns the table with the tallies of one setting, or "" if there are none.
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
	return "**" + f.Header.Title + "**\n\n| | compared with | faster | level | slower | mean |\n|---|---|--:|--:|--:|--:|\n" + b.String() + "\n"
}

// section writes the section of one setting.
func (f *File) section(b *strings.Builder, raw string) {
	h := f.Header
	fmt.Fprintf(b, "## %s\n\n", h.Title)
	fmt.Fprintf(b, "Rounds: %d, on %s; at most %g s for an operation at one size in a round", h.Rounds, h.Day, h.Budget)
	if commit := h.Software[Commit]; commit != "" {
		fmt.Fprintf(b, " · %s %s", Commit, commit)
	}
	fmt.Fprintf(b, " · [raw numbers](%s/%s%s)\n\n", raw, h.Setting, Suffix)
	fmt.Fprintf(b, "![time over size](%s/%s.svg)\n\n", raw, h.Setting)
	for _, op := range f.Ops() {
		if len(f.Sizes(op)) > 0 {
			fmt.Fprintf(b, "### %s, %s\n\n%s\n", op, h.Title, f.Table(op))
		}
	}
	if notes := f.failures(); notes != "" {
		b.WriteString("Failures:\n\n" + notes + "\n")
	}
	b.WriteString("<details><summary>commands</summary>\n\n")
	for _, s := range h.Systems {
		if s.Command != "" {
			fmt.Fprintf(b, "%s (%s):\n\n    %s\n\n", s.Label, s.About, s.Command)
		}
	}
	b.WriteString("</details>\n\n")
}

// failures lists, for each system, operation and size, the first failure and the number of failures.
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
			label := s.Label
			if at.op != "" {
				label += fmt.Sprintf(", %s of %s", at.op, Size(at.bytes))
			}
			fmt.Fprintf(&b, "- %s: %s (%d×)\n", label, first[at], count[at])
		}
	}
	return b.String()
}
