package launch

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain plays a child when LAUNCH_TEST_ROLE says which.
func TestMain(m *testing.M) {
	if role := os.Getenv("LAUNCH_TEST_ROLE"); role != "" {
		os.Exit(roles[role]())
	}
	goleak.VerifyTestMain(m)
}

// roles are the programs of children. A role may sleep for long, since the test ends its
// process.
var roles = map[string]func() int{
	"hello": func() int {
		fmt.Println("hello from", os.Getenv("N"))
		fmt.Fprint(os.Stderr, "no newline from ", os.Getenv("N"))
		return 0
	},
	"flood": func() int {
		w := bufio.NewWriterSize(os.Stdout, 777)
		for i := range 2000 {
			fmt.Fprintf(w, "%s %d ", os.Getenv("N"), i)
			if i == 1000 {
				w.Flush()
				time.Sleep(2 * partAfter)
			}
			fmt.Fprintf(w, "%s\n", strings.Repeat("x", i%300))
		}
		w.Flush()
		return 0
	},
	"status3": func() int { return 3 },
	"suicide": func() int {
		p, _ := os.FindProcess(os.Getpid())
		p.Kill()
		time.Sleep(time.Minute)
		return 0
	},
	"await": func() int {
		for {
			if _, err := os.Stat(os.Getenv("LAUNCH_TEST_FILE")); err == nil {
				return 0
			}
			time.Sleep(10 * time.Millisecond)
		}
	},
	"sleep": func() int {
		time.Sleep(time.Minute)
		return 0
	},
	"stubborn": func() int {
		signal.Ignore(os.Interrupt, syscall.SIGTERM)
		fmt.Println("ready")
		time.Sleep(time.Minute)
		return 0
	},
	"polite": func() int {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		fmt.Println("ready")
		fmt.Println("got", <-signals)
		return 0
	},
	"cat": func() int {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			fmt.Println("read", lines.Text())
		}
		fmt.Println("end")
		return 0
	},
	"parent": func() int {
		self, err := os.Executable()
		if err != nil {
			return 8
		}
		grandchild := exec.Command(self)
		grandchild.Env = append(os.Environ(), "LAUNCH_TEST_ROLE=sleep")
		grandchild.Stdout = os.Stdout
		if err := grandchild.Start(); err != nil {
			return 9
		}
		fmt.Println("grandchild", grandchild.Process.Pid)
		return 0
	},
}

// cast is a Child that plays a role.
func cast(i int, role string) Child {
	prefix := func(int) string { return fmt.Sprintf("[%d] ", i) }
	return Child{
		Name: func() string { return fmt.Sprintf("rank %d", i) }, Path: os.Args[0], Args: []string{"child"},
		Env:       append(os.Environ(), "LAUNCH_TEST_ROLE="+role, "GORACE=atexit_sleep_ms=0", fmt.Sprintf("N=%d", i)),
		OutPrefix: prefix, ErrPrefix: prefix,
	}
}
