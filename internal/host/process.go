package host

import (
	"os"
	"strconv"
)

// Process returns the host name and the ID of this process, for log lines and tables.
func Process() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return host + ":" + strconv.Itoa(os.Getpid())
}

// ProcessID identifies this process among those of its host. Processes of several containers of a host may have the same
// host name and ID.
func ProcessID() string {
	namespace, _ := os.Readlink("/proc/self/ns/pid") // Only Linux has namespaces.
	return namespace + "/" + strconv.Itoa(os.Getpid())
}
