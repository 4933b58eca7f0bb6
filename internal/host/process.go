package host

import (
	"os"
	"strconv"
)

// Process returns the host name and the ID of this process, for log lines and tables.
func Process() string { return NameOf(os.Getpid()) }

// NameOf is Process for another process of this host.
func NameOf(pid int) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return host + ":" + strconv.Itoa(pid)
}
