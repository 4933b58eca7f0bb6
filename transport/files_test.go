//race:none tests of other packages use it with goroutines

package transport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestFileShortage(t *testing.T) {
	limit := "(ulimit -n)"
	if runtime.GOOS == "windows" {
		limit = "too many"
	}
	for _, test := range []struct {
		err  error
		want string // empty: not a shortage of files
	}{
		{nil, ""},
		{errors.New("no answer"), ""},
		{os.NewSyscallError("connect", syscall.ECONNREFUSED), ""},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}, limit},
		{fmt.Errorf("accept: %w", syscall.ENFILE), "this system has too many open files"},
	} {
		var files FileShortage
		files.Note(test.err)
		files.Note(errors.New("no answer"))
		err := files.OutOfFiles()
		if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("after %v: error %v, want one that contains %q", test.err, err, test.want)
		}
	}
}
