package launch

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A tree is a process and its descendants in a job. The system ends the job when its last
// handle is closed, and so at the latest with this process.
type tree struct {
	job   windows.Handle
	pid   int
	pidfd int // always -1 on Windows
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
	// The process is created suspended and resumed in the job, so that its
	// descendants are in the job as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED}
	if err := cmd.Start(); err != nil {
		windows.CloseHandle(job)
		return tree{pidfd: -1}, err
	}
	t := tree{job, cmd.Process.Pid, -1}
	err = t.adopt()
	if err == nil {
		err = resume(uint32(t.pid))
	}
	if err != nil {
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

// resume resumes the threads of a process that was created suspended.
func resume(pid uint32) error {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return os.NewSyscallError("CreateToolhelp32Snapshot", err)
	}
	defer windows.CloseHandle(snapshot)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return os.NewSyscallError("OpenThread", err)
		}
		_, err = windows.ResumeThread(thread)
		windows.CloseHandle(thread)
		if err != nil {
			return os.NewSyscallError("ResumeThread", err)
		}
	}
	if !errors.Is(err, windows.ERROR_NO_MORE_FILES) {
		return os.NewSyscallError("Thread32Next", err)
	}
	return nil
}

// signal sends CTRL_BREAK, the only signal for a group of processes. Go programs
// receive it as os.Interrupt.
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

// terminateRest ends the remaining processes of the job. Windows has no signal that
// requests it.
func (t tree) terminateRest() { t.kill() }

// finish does nothing: terminateRest has ended the job.
func (tree) finish(time.Duration, <-chan struct{}) {}

func (t tree) release() {
	if t.job != 0 {
		_ = windows.CloseHandle(t.job)
	}
}

func requestsEnd(os.Signal) bool { return true }

// Forwarded returns the signals to forward to children.
func Forwarded() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// signalOf returns 0: signals do not end processes on Windows.
func signalOf(*os.ProcessState) (int, string) { return 0, "" }
