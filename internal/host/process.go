package host

import (
	"os"
	"strconv"
)

// Process names this process to people.
func Process() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return host + ":" + strconv.Itoa(os.Getpid())
}
