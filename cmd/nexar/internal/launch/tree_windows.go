package launch

import (
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A tree is a process and those that it starts: a job, which the system ends
// with the last handle to it, that is, with this process.
type tree struct {
	job   windows.Handle
	pid   int
	pidfd int // always -1: processes have none here
}

func startTree(cmd *exec.Cmd) (tree, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return tree{pidfd: -1}, os.NewSyscallError("CreateJobObject", err)
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		windows.CloseHandle(job)
		return tree{pidfd: -1}, os.NewSyscallError("SetInformationJobObject", err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
	if err := cmd.Start(); err != nil {
		windows.CloseHandle(job)
		return tree{pidfd: -1}, err
	}
	t := tree{job, cmd.Process.Pid, -1}
	if err := t.adopt(); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		windows.CloseHandle(job)
		return tree{pidfd: -1}, err
	}
	return t, nil
}

// adopt puts the process into the job.
func (t tree) adopt() error {
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(t.pid))
	if err != nil {
		return os.NewSyscallError("OpenProcess", err)
	}
	defer windows.CloseHandle(h)
	return os.NewSyscallError("AssignProcessToJobObject", windows.AssignProcessToJobObject(t.job, h))
}

// signal sends the one signal that can be sent to a group of processes, which
// Go programs receive as os.Interrupt.
func (t tree) signal(os.Signal) {
	if t.pid != 0 {
		_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(t.pid))
	}
}

func (t tree) terminate() { t.signal(os.Interrupt) }

func (t tree) kill() {
	if t.job != 0 {
		_ = windows.TerminateJobObject(t.job, 1)
	}
}

func (t tree) release() {
	if t.job != 0 {
		_ = windows.CloseHandle(t.job)
	}
}

func asksToEnd(os.Signal) bool { return true }

// Forwarded are the signals to pass on to children.
func Forwarded() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// signalOf is 0: processes are not ended by signals here.
func signalOf(*os.ProcessState) (int, string) { return 0, "" }
