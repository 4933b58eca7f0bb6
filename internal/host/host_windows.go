package host

import (
	"os"

	"golang.org/x/sys/windows/registry"
)

// systemHost returns the ID of this installation of Windows and the name of the host.
func systemHost() string {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, `SOFTWARE\Microsoft\Cryptography`, registry.QUERY_VALUE|registry.WOW64_64KEY)
	if err != nil {
		return ""
	}
	defer key.Close()
	id, _, err := key.GetStringValue("MachineGuid")
	name, err2 := os.Hostname()
	if err != nil || err2 != nil {
		return ""
	}
	return id + "/" + name
}
