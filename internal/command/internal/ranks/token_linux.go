package ranks

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memoryTokenFile makes an anonymous file, which processes of this user open by the path of its descriptor
// in /proc. It ends with this process. ok is false where they cannot: without /proc, or if the kernel
// protects this process from them.
func memoryTokenFile(token string) (t *tokenFile, ok bool) {
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || dumpable != 1 {
		return nil, false
	}
	fd, err := unix.MemfdCreate("nexar-token", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, false
	}
	f := os.NewFile(uintptr(fd), "token")
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	_, err = f.WriteString(token + "\n")
	if err == nil {
		err = f.Chmod(0o600)
	}
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		f.Close()
		return nil, false
	}
	return &tokenFile{path, func() { f.Close() }}, true
}
