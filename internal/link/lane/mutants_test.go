package lane

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A mutant is a fault in the source of the package: old is replaced by planted.
type mutant struct{ name, file, old, planted string }

// mutants returns faults that the tests must find.
func mutants() []mutant {
	return []mutant{
		{"two proposals are accepted at once", "session.go", "case s.inUse, s.answering && accepts:", "case s.inUse:"},
		{"a connection is proposed beside the one in use", "session.go", "case s.inUse, s.answering && accepts:", "case s.answering && accepts:"},
		{"a connection is proposed while one is accepted", "session.go", "case s.answering: // Its number", "case false: // Its number"},
		{"two connections are proposed at once", "session.go", "case s.proposing && !accepts:", "case false:"},
		{"the end of a proposal is forgotten", "session.go", "\t\ts.proposing = false", "\t\t_ = s"},
		{"the end of an acceptance is forgotten", "session.go", "\t\ts.answering = false", "\t\t_ = s"},
		{"statements have no number", "session.go", "Number: c.number, From", "Number: 1, From"},
		{"a proposal does not name the link of the peer", "session.go", ", To: s.Peer}", "}"},
		{"an older proposal replaces the connection", "session.go", "return theirs.Number > s.newest }", "return true }"},
		{"a connection that the peer has lost stays", "session.go", "return theirs.Number > s.newest }", "return false }"},
		{"the end of the peer is ignored", "session.go", "\t\treturn true, errors.New(\"it has ended the link\")", "\t\treturn false, errors.New(\"it has ended the link\")"},
		{"another link of the peer continues this one", "session.go", "case s.Peer == unknown || theirs.From == s.Peer:", "case true:"},
		{"an old proposal counts", "session.go", "case theirs.Number < s.newest:", "case false:"},
		{"a connection is used beside another one", "session.go", "\tcase s.inUse:\n\t\treturn ErrConnected\n\tcase s.ended", "\tcase s.ended"},
		{"a connection is used after another one has ended", "session.go", "case s.ended != c.ended:", "case false:"},
		{"the number of a connection is forgotten", "session.go", "max(s.newest, theirs.Number)", "s.newest"},
		{"the name of the peer is forgotten", "session.go", "cmp.Or(theirs.From, s.Peer)", "cmp.Or(s.Peer, s.Peer)"},
		{"ended connections are not counted", "session.go", "\ts.ended++", "\t_ = s"},
		{"an ended connection stays in use", "session.go", "func (s *Session) End() {\n\ts.inUse = false", "func (s *Session) End() {\n\t_ = s"},
		{"frames are repeated from the acknowledgement", "out.go", "o.written, o.batch = position, position\n", "o.written, o.batch = o.acked, o.acked\n"},
		{"a new connection goes on where the earlier one was", "out.go", "o.written, o.batch = position, position\n", "o.written = max(o.written, position); o.batch = max(o.batch, position)\n"},
		{"transient frames are written inside numbered ones", "out.go", "\tif o.written == o.batch { // between two frames\n", "\tif o.transient = o.transient[o.passed:]; len(o.transient) > 0 {\n\t\to.passed, o.lent = 0, len(o.transient)\n\t\treturn o.transient, nil\n\t}\n\tif o.written == o.batch {\n"},
		{"transient frames outlive their connection", "out.go", "o.transient, o.passed, o.lent, o.writing, o.lasting = o.transient[:0], 0,", "o.transient, o.passed, o.lent, o.writing, o.lasting = o.transient, o.passed,"},
		{"transient frames of a writer are overwritten", "out.go", "\t\to.transient = nil\n\t}\n\to.transient, o.passed", "\t}\n\to.transient, o.passed"},
		{"a buffer is reused while a writer holds it", "out.go", "if position < o.end || o.writing || o.written < o.end {", "if position < o.end {"},
		{"a buffer is reused while an earlier writer holds it", "out.go", "\t\to.tail.held = true\n", ""},
		{"a chunk is recycled while a writer holds it", "out.go", "isFree := !c.held && (!o.writing || c.end() <= o.written)", "isFree := !c.held"},
		{"a chunk is recycled while an earlier writer holds it", "out.go", "isFree := !c.held && (!o.writing || c.end() <= o.written)", "isFree := !o.writing || c.end() <= o.written"},
		{"bytes of a write that has not returned are a fault", "out.go", "\tif o.writing {\n\t\tsent = o.batch", "\tif false {\n\t\tsent = o.batch"},
		{"bytes that only a broken write has sent are a fault", "out.go", "o.high = max(o.high, o.batch)", "o.high = max(o.high, o.written)"},
		{"chunks are never freed", "out.go", "for len(o.older) > 0 && o.older[0].end() <= position {", "for false {"},
		{"a frame from other memory is not kept", "out.go", "if o.lasting { // Nothing is kept.", "if true {"},
		{"a frame from other memory is written again", "out.go", "o.written, o.batch, o.high = o.end, o.end, max(o.high, o.end)", "o.high = max(o.high, o.end)"},
		{"an idle lane forgets its frames", "out.go", "if c.end() > o.acked {\n\t\t\trest.bytes", "if false {\n\t\t\trest.bytes"},
		{"an idle lane repeats what the peer has", "out.go", "max(c.start, o.acked)-c.start", "0"},
		{"an idle lane loses its place", "out.go", "rest := chunk{start: o.acked}", "rest := chunk{start: o.written}"},
		{"handled bytes are lost", "in.go", "i.received.Add(uint64(n))", "i.received.Add(uint64(n) &^ 1)"},
		{"a transfer without its grant in the list is repeated", "transfers.go", "delivered = append(delivered, t)\n\t\t\treturn true", "t.sent = 0"},
		{"a grant made after the list is delivered", "transfers.go", "case t.grant <= r.Last:", "case t.grant > 0:"},
		{"a transfer goes on where it was", "transfers.go", "t.sent = int(list[i].Got)", "_ = i"},
		{"a transfer never goes back", "transfers.go", "t.sent = int(list[i].Got)", "t.sent = max(t.sent, int(list[i].Got))"},
		{"a transfer never goes forward", "transfers.go", "t.sent = int(list[i].Got)", "t.sent = min(t.sent, int(list[i].Got))"},
		{"a grant that was made later keeps its bytes", "transfers.go", "default: // The grant was made after the peer had stated its numbers.\n\t\t\tt.sent = 0", "default:"},
		{"a segment whose write has not returned is a fault", "transfers.go", "t.begun = max(t.begun, t.sent+n) // The peer may have the bytes before the write returns.\n\treturn", "return"},
		{"a recalled transfer goes on", "transfers.go", "if was = ok && s.open[i] == t; was {", "if was = ok && s.open[i] == t; false {"},
		{"a filled grant stays open", "grants.go", "return g.got == g.size && s.Withdraw(g)", "return g.got == g.size"},
		{"an opening lists only grants with bytes", "grants.go", "for _, g := range s.open {\n", "for _, g := range s.open {\n\t\tif g.got == 0 {\n\t\t\tcontinue\n\t\t}\n"},
		{"a segment at another offset is taken", "grants.go", "case offset != uint64(g.got):", "case offset > uint64(g.size):"},
	}
}

// Each mutant changes one place of the source. MUTANTS=all also runs the other tests with each, which must fail.
func TestMutants(t *testing.T) {
	if os.Getenv("MUTANT") != "" {
		return
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range mutants() {
		source, err := os.ReadFile(m.file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), m.old); n != 1 {
			t.Errorf("%s: %s has %q %d times, want once", m.name, m.file, m.old, n)
			continue
		}
		if os.Getenv("MUTANTS") != "all" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			temp := t.TempDir()
			changed := filepath.Join(temp, m.file)
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(dir, m.file): changed}})
			if err != nil {
				t.Fatal(err)
			}
			write(t, changed, strings.Replace(string(source), m.old, m.planted, 1))
			write(t, filepath.Join(temp, "overlay.json"), string(overlay))
			run := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-failfast", "-count=1", "-timeout=5m", "-overlay", filepath.Join(temp, "overlay.json"), ".")
			run.Env = append(os.Environ(), "MUTANT="+m.name, "SEARCH=", "REPORT=")
			out, err := run.CombinedOutput()
			switch {
			case err == nil:
				t.Errorf("not found: %q for %q in %s", m.planted, m.old, m.file)
			case strings.Contains(string(out), "[build failed]"):
				t.Errorf("does not compile:\n%s", out)
			default:
				found++
				t.Log(cause(string(out)))
			}
		})
	}
	if found > 0 {
		report(t, "planted faults %d of %d found", found, len(mutants()))
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// cause returns the last line of the output of a test that names a fault.
func cause(out string) string {
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, " steps: ") || strings.Contains(line, " states: ") || strings.HasPrefix(line, "panic: ") ||
			strings.Contains(line, "_test.go") && !strings.Contains(line, "search_test.go") {
			return strings.TrimSpace(line)
		}
	}
	return out
}
