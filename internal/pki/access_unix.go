//go:build unix

package pki

import (
	"io/fs"
	"os"
	"syscall"
)

func accessOf(info fs.FileInfo) (a access, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return a, false
	}
	groups, _ := os.Getgroups() // Without them, the file needs the mode 0600.
	return access{
		mode: info.Mode(), owner: int(stat.Uid), group: int(stat.Gid),
		reader: os.Geteuid(), groups: append(groups, os.Getegid()),
	}, true
}
