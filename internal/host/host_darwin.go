package host

import "syscall"

// systemHost returns the ID of this boot.
func systemHost() string {
	id, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
