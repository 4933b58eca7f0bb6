package raftlog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A full disk ends the log with an error that names the file and the remedy. Each
// acknowledged change is there after the next start.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	id := g.seeds[0]
	path := filepath.Join(g.path(id), stateFile)
	g.propose("acknowledged")
	if err := os.Symlink(fullDevice, path+newSuffix); err != nil {
		t.Fatal(err)
	}
	l := g.logs[id]
	_, term := g.leader()
	l.Propose(term, []byte("lost"))
	<-l.Done()
	if err := l.Err(); err == nil || !strings.Contains(err.Error(), path+newSuffix+": no space left on device") || !strings.Contains(err.Error(), "start the seed again") {
		t.Errorf("error %v", err)
	}
	if err := os.Remove(path + newSuffix); err != nil {
		t.Fatal(err)
	}
	g.kill(id)
	g.start(id)
	g.propose("after")
	if lines := g.agree(2, id); string(lines[0]) != "acknowledged" || string(lines[1]) != "after" {
		t.Errorf("changes %q", lines)
	}
}
