package host

import (
	"os"
	"strings"
)

// systemHost returns the ID of this boot and the network namespace.
func systemHost() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, err2 := os.Readlink("/proc/self/ns/net")
	if err != nil || err2 != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "/" + namespace
}
