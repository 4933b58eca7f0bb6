package host

import (
	"os"
	"strings"
)

// systemHost is what Linux calls this boot and this network namespace.
func systemHost() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, err2 := os.Readlink("/proc/self/ns/net")
	if err != nil || err2 != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "/" + namespace
}
