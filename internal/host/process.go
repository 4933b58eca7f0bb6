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
