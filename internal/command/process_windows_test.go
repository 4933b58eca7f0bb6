package command

import "os"

func running(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	p.Release()
	return true
}

// end kills this process.
func end() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		p.Kill()
	}
}

// quitParent does nothing: there is no such signal.
func quitParent() {}
