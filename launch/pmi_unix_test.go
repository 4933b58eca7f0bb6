//go:build linux || darwin || freebsd

package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestPMIRequests(t *testing.T) {
	both(t, func(t *testing.T, version int) {
		p := open(t, steps(version, []step{
			{"cmd=put kvsname=kvs_7_0 key=seed-1 value=YWI=+/\n", "cmd=put_result rc=0 msg=success\n"},
			{"cmd=barrier_in\n", "cmd=barrier_out tag=0\n"},
			{"cmd=get kvsname=kvs_7_0 key=seed-0\n", "cmd=get_result rc=0 msg=success value=a=b\n"},
			{"cmd=finalize\n", "cmd=finalize_ack rc=0\n"},
		}, []step{
			{"    36cmd=kvs-put;key=seed-1;value=YWI=+/;", mpich("cmd=kvs-put-response;rc=0;")},
			{"    14cmd=kvs-fence;", slurm("cmd=kvs-fence-response;rc=0;")},
			{"    23cmd=kvs-get;key=seed-0;", mpich("cmd=kvs-get-response;rc=0;found=TRUE;value=a=b;;")},
			{"    13cmd=finalize;", mpich("cmd=finalize-response;rc=0;")},
		}))
		ctx := t.Context()
		if err := p.Put(ctx, "seed-1", "YWI=+/"); err != nil {
			t.Fatal(err)
		}
		if err := p.Fence(ctx); err != nil {
			t.Fatal(err)
		}
		if value, err := p.Get(ctx, "seed-0"); err != nil || value != "a=b" {
			t.Fatalf("value %q, error %v", value, err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatalf("second Close: %v", err)
		}
		contains(t, p.Fence(ctx), "closed")
	})
}

func TestPMINegotiation(t *testing.T) {
	const one, two = "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=init pmi_version=2 pmi_subversion=0\n"
	const yes2 = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"
	for _, test := range []struct {
		steps []step
		parts []string
	}{
		{[]step{{one, "cmd=response_to_init rc=1 pmi_version=1 pmi_subversion=0 msg=too_old\n"}}, []string{"PMI-1 init", "rc=", "too_old"}},
		{[]step{{one, "cmd=response_to_init rc=0 pmi_version=3 pmi_subversion=0\n"}}, []string{"PMI-1 init", "pmi_version=3", "expected pmi_version=1 or pmi_version=2"}},
		{[]step{{one, "cmd=response_to_init rc=0\n"}}, []string{"PMI-1 init", "expected pmi_version=1 or pmi_version=2"}},
		{[]step{{one, refuses2}, {two, refuses2}}, []string{"PMI-2 init", "refused", `rc="-1"`}},
		{[]step{{one, refuses2}, {two, opening(1)[0].answer}}, []string{"PMI-2 init", "pmi_version=1", "expected pmi_version=2"}},
		{[]step{{one, refuses2}, {two, yes2}, {opening(2)[2].request, ""}}, []string{"PMI-2 fullinit", "closed", "expected fullinit-response"}},
	} {
		env, manager := connected(t, nil)
		script(t, manager, test.steps)
		_, err := OpenPMI(t.Context(), env)
		contains(t, err, test.parts...)
	}
}

func TestPMIContradictions(t *testing.T) {
	for name, test := range map[string]struct {
		vars    map[string]string
		version int
		parts   []string
	}{
		"rank":        {map[string]string{"PMI_RANK": "2"}, 2, []string{`rank="1"`, `PMI_RANK is "2"`}},
		"size":        {map[string]string{"PMI_SIZE": "8"}, 2, []string{`size="4"`, `PMI_SIZE is "8"`}},
		"spawned":     {map[string]string{"PMI_SPAWNED": "1"}, 2, []string{`spawner-jobid=""`, `PMI_SPAWNED is "1"`}},
		"application": {map[string]string{"MPI_APPNUM": "3"}, 1, []string{`appnum="0"`, `MPI_APPNUM is "3"`}},
	} {
		t.Run(name, func(t *testing.T) {
			env, manager := connected(t, test.vars)
			s := opening(test.version)
			if rank := test.vars["PMI_RANK"]; rank != "" {
				s[2].request = strings.Replace(s[2].request, "pmirank=1", "pmirank="+rank, 1)
			}
			script(t, manager, s)
			_, err := OpenPMI(t.Context(), env)
			contains(t, err, append(test.parts, fmt.Sprintf("PMI-%d", test.version))...)
			if !errors.Is(err, ErrLaunch) {
				t.Errorf("%v is no ErrLaunch", err)
			}
		})
	}
}

// Each wrong answer ends a call with an error that names the call, the version, the expected and the actual answer. The connection is not used again.
func TestPMIWrongAnswers(t *testing.T) {
	const secret = "c2VjcmV0"
	long := strings.Repeat("x", 100000)
	for name, answers := range map[string][2]struct {
		answer string
		parts  []string
	}{
		"garbage": {
			{"\x00\xffGET / HTTP\n", []string{"0x00", `"\x00\xffGET / HTTP\n"`, "expected get_result"}},
			{"\x00\xffGET / HTTP\n", []string{"length prefix", `\x00\xffGET`, "/ HTTP", "expected kvs-get-response"}},
		},
		"overlong": {
			{"cmd=get_result " + long, []string{"more than 8192 bytes", "more bytes", "expected get_result"}},
			{"100010cmd=kvs-get-response;" + long, []string{`"100010"`, "up to 8186", "expected kvs-get-response"}},
		},
		"length of nothing": {
			{"\n", []string{`does not begin with "cmd="`}},
			{"     0", []string{`does not begin with "cmd="`}},
		},
		"wrong length": {
			{"cmd=get_resu\n", []string{`"cmd=get_resu\n"`, "expected get_result"}},
			{"     4cmd=kvs-get-response;rc=0;found=TRUE;value=a;", []string{`"     4cmd="`, "expected kvs-get-response"}},
		},
		"negative length": {
			{"-5\n", []string{`"-5\n"`}},
			{"    -5cmd=", []string{`"    -5"`, "expected a number"}},
		},
		"out of order": {
			{"cmd=barrier_out rc=0\n", []string{"barrier_out", "expected get_result"}},
			{mpich("cmd=kvs-fence-response;rc=0;"), []string{"kvs-fence-response", "expected kvs-get-response"}},
		},
		"no value": {
			{"cmd=get_result rc=0\n", []string{"expected a value"}},
			{mpich("cmd=kvs-get-response;rc=0;found=TRUE;"), []string{"expected a value"}},
		},
		"twice the same field": {
			{"cmd=get_result rc=0 value=" + secret + " value=b\n", []string{`"value" twice`}},
			{mpich("cmd=kvs-get-response;rc=0;value=" + secret + ";value=b;"), []string{`"value" twice`}},
		},
		"too many fields": {
			{"cmd=get_result" + numbered(" k%d=v") + "\n", []string{"more than 64 fields"}},
			{mpich("cmd=kvs-get-response" + numbered(";k%d=v")), []string{"more than 64 fields"}},
		},
	} {
		both(t, func(t *testing.T, version int) {
			t.Run(name, func(t *testing.T) {
				test := answers[version-1]
				p := open(t, steps(version,
					[]step{{"cmd=get kvsname=kvs_7_0 key=k\n", test.answer}},
					[]step{{"    18cmd=kvs-get;key=k;", test.answer}}))
				_, err := p.Get(t.Context(), "k")
				contains(t, err, append(test.parts, fmt.Sprintf("PMI-%d", version), []string{"get", "kvs-get"}[version-1])...)
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error contains a value: %v", err)
				}
				if name != "no value" {
					contains(t, p.Put(t.Context(), "a", "b"), "cannot be used")
					if err := p.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
				}
			})
		})
	}
}

func numbered(format string) (text string) {
	for i := range 70 {
		text += fmt.Sprintf(format, i)
	}
	return text
}

// The process manager closes the connection before each byte of an answer.
func TestPMIClosedConnection(t *testing.T) {
	both(t, func(t *testing.T, version int) {
		answer := []string{"cmd=barrier_out rc=0\n", mpich("cmd=kvs-fence-response;rc=0;")}[version-1]
		for n := range len(answer) {
			env, manager := connected(t, nil)
			fence := step{[]string{"cmd=barrier_in\n", "    14cmd=kvs-fence;"}[version-1], answer[:n]}
			s := append(steps(version, nil, nil), fence)
			if n > 0 {
				s = append(s, step{})
			}
			script(t, manager, s)
			p, err := OpenPMI(t.Context(), env)
			if err != nil {
				t.Fatal(err)
			}
			contains(t, p.Fence(t.Context()), "closed the connection", fmt.Sprintf("read %q", answer[:n]))
			if err := p.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	})
}

// A refusal is an error with the reason, and the connection can still be used.
func TestPMIRefusals(t *testing.T) {
	both(t, func(t *testing.T, version int) {
		p := open(t, steps(version, []step{
			{"cmd=put kvsname=kvs_7_0 key=k value=v\n", "cmd=put_result rc=-1 msg=duplicate_key k\n"},
			{"cmd=get kvsname=kvs_7_0 key=a\n", "cmd=get_result rc=-1 msg=key_a_not_found value=unknown\n"},
			{"cmd=get kvsname=kvs_7_0 key=a\n", "cmd=get_result rc=1\n"},
			{"cmd=barrier_in\n", "cmd=barrier_out rc=1 msg=mpi/pmi2:_failed\\ to\\ send\n"},
		}, []step{
			{"    26cmd=kvs-put;key=k;value=v;", mpich("cmd=kvs-put-response;rc=-1;errmsg=duplicate_key k;")},
			{"    18cmd=kvs-get;key=a;", mpich("cmd=kvs-get-response;rc=0;found=FALSE;")},
			{"    18cmd=kvs-get;key=a;", mpich("cmd=kvs-get-response;rc=1;")},
			{"    14cmd=kvs-fence;", mpich("cmd=kvs-fence-response;rc=1;errmsg=mpi/pmi2:_failed to send ..;")},
		}))
		ctx := t.Context()
		contains(t, p.Put(ctx, "k", "v"), "duplicate_key k", "refused")
		for range 2 {
			if _, err := p.Get(ctx, "a"); !errors.Is(err, ErrNoValue) {
				t.Errorf("%v is no ErrNoValue", err)
			}
		}
		contains(t, p.Fence(ctx), "rc=", "failed")
	})
}

// An answer too many does not become the answer of the next call.
func TestPMITwoAnswers(t *testing.T) {
	both(t, func(t *testing.T, version int) {
		p := open(t, steps(version,
			[]step{{"cmd=barrier_in\n", "cmd=barrier_out\ncmd=barrier_out\n"}},
			[]step{{"    14cmd=kvs-fence;", strings.Repeat(mpich("cmd=kvs-fence-response;rc=0;"), 2)}}))
		if err := p.Fence(t.Context()); err != nil {
			t.Fatal(err)
		}
		contains(t, p.Fence(t.Context()), "has sent more after its answer")
	})
}

// A process manager that does not answer hangs no call: the end of the context ends it.
func TestPMIHangs(t *testing.T) {
	enough := errors.New("that is enough")
	for name, call := range map[string]func(ctx context.Context, p *PMIClient, env Environment) error{
		"OpenPMI": func(ctx context.Context, _ *PMIClient, env Environment) error {
			_, err := OpenPMI(ctx, env)
			return err
		},
		"Put":   func(ctx context.Context, p *PMIClient, _ Environment) error { return p.Put(ctx, "k", "v") },
		"Fence": func(ctx context.Context, p *PMIClient, _ Environment) error { return p.Fence(ctx) },
		"Get":   func(ctx context.Context, p *PMIClient, _ Environment) error { _, err := p.Get(ctx, "k"); return err },
		"Close": func(ctx context.Context, p *PMIClient, _ Environment) error { return p.close(ctx) },
	} {
		both(t, func(t *testing.T, version int) {
			t.Run(name, func(t *testing.T) {
				env, manager := connected(t, nil)
				ctx, cancel := context.WithCancelCause(t.Context())
				first := opening(version)
				if name == "OpenPMI" {
					first = nil
				}
				var end sync.WaitGroup
				defer end.Wait()
				opened := make(chan struct{})
				end.Go(func() {
					for _, s := range first {
						_, _ = io.ReadFull(manager, make([]byte, len(s.request)))
						_, _ = io.WriteString(manager, s.answer)
					}
					close(opened)
					if _, err := manager.Read(make([]byte, 1)); err != nil { // until the request of the call has arrived
						t.Error(err)
					}
					cancel(enough)
				})
				var p *PMIClient
				if first != nil {
					var err error
					if p, err = OpenPMI(t.Context(), env); err != nil {
						t.Fatal(err)
					}
				}
				<-opened
				err := call(ctx, p, env)
				if !errors.Is(err, enough) {
					t.Errorf("%v: expected the cause of the context", err)
				}
				if p == nil {
					return
				}
				if err := p.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		})
	}
}

// A context that has ended before the call sends nothing.
func TestPMIEndedContext(t *testing.T) {
	p := open(t, steps(1, []step{{"cmd=barrier_in\n", "cmd=barrier_out\n"}}, nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Fence(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := p.Fence(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestPMIArguments(t *testing.T) {
	both(t, func(t *testing.T, version int) {
		p := open(t, opening(version)) // It has no answers to more requests.
		secret := strings.Repeat("Q", 1024)
		longest := []string{"at most 984", "at most 1023"}[version-1]
		for _, test := range []struct{ key, value, part string }{
			{"", "v", "empty"},
			{"k", "", "empty"},
			{"a b", "v", "byte 1 is 0x20"},
			{"a=b", "v", `byte 1 is "="`},
			{"k", "QQQ;", "byte 3 is 0x3b"},
			{"k", "QQQ\n", "byte 3 is 0x0a"},
			{"k", "QQé", "byte 2 is 0xc3"},
			{"k", `Q\`, "byte 1 is 0x5c"},
			{strings.Repeat("k", 64), "v", "64 bytes: expected at most 63"},
			{"k", secret, "1024 bytes: expected at most"},
			{"k", secret[:1023], []string{longest, ""}[version-1]},
		} {
			if test.part == "" {
				continue
			}
			err := p.Put(t.Context(), test.key, test.value)
			contains(t, err, test.part, "put")
			if len(test.value) > 1 && strings.Contains(err.Error(), test.value[:2]) {
				t.Errorf("the error contains the value: %v", err)
			}
		}
		if _, err := p.Get(t.Context(), "a b"); err == nil {
			t.Error("got the value of a key with a space")
		}
	})
}

// The longest value and key reach the process manager and come back.
func TestPMILongest(t *testing.T) {
	both(t, func(t *testing.T, version int) {
		key := strings.Repeat("k", 63)
		value := strings.Repeat("v", []int{1023 - len("cmd=put kvsname=kvs_7_0 key= value=\n") - 63, 1023}[version-1])
		p := open(t, steps(version, []step{
			{"cmd=put kvsname=kvs_7_0 key=" + key + " value=" + value + "\n", "cmd=put_result rc=0\n"},
			{"cmd=get kvsname=kvs_7_0 key=" + key + "\n", "cmd=get_result rc=0 value=" + value + "\n"},
		}, []step{
			{"  1110cmd=kvs-put;key=" + key + ";value=" + value + ";", mpich("cmd=kvs-put-response;rc=0;")},
			{"    80cmd=kvs-get;key=" + key + ";", mpich("cmd=kvs-get-response;rc=0;found=TRUE;value=" + value + ";")},
		}))
		if err := p.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
		if got, err := p.Get(t.Context(), key); err != nil || got != value {
			t.Fatalf("value of %d bytes, error %v", len(got), err)
		}
	})
}

func TestPMIDescriptor(t *testing.T) {
	socket := func(kind int) int {
		fd, err := syscall.Socket(syscall.AF_UNIX, kind, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Close(fd) })
		return fd
	}
	pipe := make([]int, 2)
	if err := syscall.Pipe(pipe); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pipe[0])
	defer syscall.Close(pipe[1])
	own, err := os.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for _, test := range []struct{ fd, part string }{
		{"", "not set"}, {"x", `"x"`}, {"-1", `"-1"`}, {"2", "3 or more"}, {"4000000000", "3 or more"}, {"999983", "not open"},
		{strconv.Itoa(pipe[0]), "no socket"},
		{strconv.Itoa(int(own.Fd())), "opened the descriptor itself"},
		{strconv.Itoa(socket(syscall.SOCK_STREAM)), "without a connection"},
		{strconv.Itoa(socket(syscall.SOCK_DGRAM)), "not a stream"},
	} {
		_, err := OpenPMI(t.Context(), Environment{Vars: map[string]string{"PMI_FD": test.fd}})
		contains(t, err, "PMI_FD", test.part)
		if !errors.Is(err, ErrLaunch) {
			t.Errorf("%v is no ErrLaunch", err)
		}
		if fd, _ := strconv.Atoi(test.fd); fd > 2 && fd < 1000 {
			if err := syscall.Fstat(fd, new(syscall.Stat_t)); err != nil {
				t.Errorf("OpenPMI has closed the descriptor of others %d: %v", fd, err)
			}
		}
	}
	_, err = OpenPMI(t.Context(), Environment{Vars: map[string]string{"PMI_PORT": "host:1"}})
	contains(t, err, "-pmi-port", "host:1")
}

// Programs that the process starts do not inherit the descriptor.
func TestPMICloseOnExec(t *testing.T) {
	env, manager := connected(t, nil)
	script(t, manager, opening(1))
	p, err := OpenPMI(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	defer p.conn.Close()
	fd, _ := strconv.Atoi(env.Vars["PMI_FD"])
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	if errno != 0 || flags&syscall.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x (%v): expected FD_CLOEXEC", flags, errno)
	}
	_, err = OpenPMI(t.Context(), env)
	contains(t, err, "opened the descriptor itself")
}
