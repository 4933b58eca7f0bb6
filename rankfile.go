package nexar

import (
	"fmt"
	"os"
	"strings"

	"github.com/nexar-go/nexar/internal/node"
)

// rankFileVariable has the path of a file that nexar run makes for each process that it starts. A node writes its rank
// to it, for the prefix of its output, and locks it, since one node is meant to join for each process, and
// children of that process inherit its variables. The variable and the file are private to package nexar and nexar run.
const rankFileVariable = "_NEXAR_RANK_FILE"

// rankFileBytes is the length of the file: a decimal number and a newline, after spaces.
const rankFileBytes = 12

// openRankFile opens the file, and locks it until it is closed. It returns an error if another process has locked
// it, and no file if there is none of that length: nodes work without it, but output keeps its prefix.
func openRankFile(lock bool) (*os.File, error) {
	path := os.Getenv(rankFileVariable)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() != rankFileBytes {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil
	}
	holder := 0
	if lock {
		holder = node.Claim(f)
	}
	if holder == 0 {
		return f, nil
	}
	defer f.Close()
	b := make([]byte, rankFileBytes)
	_, _ = f.ReadAt(b, 0)
	whose := "joins"
	if rank := strings.TrimSpace(string(b)); rank != "" {
		whose = "has joined as rank " + rank
	} else if rank = os.Getenv(variable("Rank")); rank != "" { // That of the child is the same.
		whose = "joins as rank " + rank
	}
	return nil, fmt.Errorf("%w: this process (pid %d) is a child of a process of nexar run that %s (pid %d), and has inherited its NEXAR_SEEDS: start it by 'nexar run', which makes a world of its own, or unset NEXAR_SEEDS and the other NEXAR_ variables",
		ErrConfig, os.Getpid(), whose, holder)
}

// setWorld makes c the communicator of the world.
func (n *Node) setWorld(c *Comm) {
	n.mu.Lock()
	n.world.Store(c)
	for w := range n.leaves {
		n.leaves[w] = c.comm.AwaitWorld(w)
	}
	n.mu.Unlock()
	if n.rankFile != nil {
		_, _ = n.rankFile.WriteAt(fmt.Appendf(nil, "%*d\n", rankFileBytes-1, c.Rank()), 0)
	}
}
