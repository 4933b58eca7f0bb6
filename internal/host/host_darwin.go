package host

import "syscall"

// systemHost is what macOS calls this boot.
func systemHost() string {
	id, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
