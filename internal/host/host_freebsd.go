package host

import (
	"os"
	"syscall"
)

// systemHost returns the UUID and the name of this host or jail.
func systemHost() string {
	id, err := syscall.Sysctl("kern.hostuuid")
	name, err2 := os.Hostname()
	if err != nil || err2 != nil {
		return ""
	}
	return id + "/" + name
}
