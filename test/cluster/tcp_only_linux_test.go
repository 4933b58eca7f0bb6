package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testlog"
)

// filterAllUDP has a host drop all UDP packets, also those of its loopback interface.
func (h *host) filterAllUDP(t *testing.T) {
	t.Helper()
	h.dropUDP(t, "")
}

// A program is a running command on a host.
type program struct {
	args  []string
	out   testlog.Buffer // standard output and standard error
	ended chan struct{}  // closed when err is set
	err   error
}

// begin starts a command on a host.
func (h *host) begin(t *testing.T, env []string, name string, args ...string) *program {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	p := &program{args: cmd.Args, ended: make(chan struct{})}
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &p.out, &p.out
	if err := h.start(cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	return p
}

// end waits for a command, which must succeed, and returns its output.
func (p *program) end(t *testing.T) string {
	t.Helper()
	<-p.ended
	if p.err != nil {
		t.Errorf("%v: %v\n%s", p.args, p.err, p.out.String())
	}
	return p.out.String()
}

// await waits until a command has printed a text.
func (p *program) await(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(p.out.String(), text) {
		select {
		case <-p.ended:
			t.Fatalf("%v has ended without %q: %v\n%s", p.args, text, p.err, p.out.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// warning is a warning about UDP or QUIC. On a busy machine there are others, that the world is still forming.
var warning = regexp.MustCompile(`(?mi)WARN.*(udp|quic).*$`)

// TestCommandsWithoutUDP: where UDP is filtered on every host, the commands work over TCP. By default each of
// them says once that it uses TCP; with NEXAR_TRANSPORTS=tcp they send no UDP packet and say nothing.
func TestCommandsWithoutUDP(t *testing.T) {
	t.Parallel()
	command := filepath.Join(programs.Dir(t), "nexar")
	for name, transports := range map[string]string{"by default": "", "tcp": "tcp", "shm,tcp": "shm,tcp"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newNetwork(t, 2, ipv4)
			for _, h := range w.hosts {
				h.filterAllUDP(t)
			}
			seed := w.hosts[0].addr().String() + ":7946"
			env := []string{"NEXAR_CLUSTER_TOKEN=" + nexar.NewToken(), "NEXAR_TRANSPORTS=" + transports, "NEXAR_SEEDS=" + seed}
			serving := w.hosts[0].begin(t, env, command, "seed", "--listen", seed, "--world", "4")
			serving.await(t, "On the other hosts")

			outputs := make(map[string]string)
			outputs["status"] = w.hosts[1].begin(t, env, command, "status").end(t)
			outputs["doctor"] = w.hosts[1].begin(t, env, command, "doctor", "-n", "2").end(t)
			bench := []string{"run", "-n", "2", "--", command, "bench", "--op", "all_reduce", "--max", "1KiB", "--iters", "3"}
			first, second := w.hosts[0].begin(t, env, command, bench...), w.hosts[1].begin(t, env, command, bench...)
			outputs["run on the host of the seed"], outputs["run on the other host"] = first.end(t), second.end(t)
			if !strings.Contains(outputs["run on the host of the seed"]+outputs["run on the other host"], "0 wrong elements") {
				t.Error("no rank has reported a result without wrong elements")
			}
			if out := serving.end(t); !strings.Contains(out, "the world of 4 nodes has formed") {
				t.Errorf("the seed: %s", out)
			}
			outputs["bench"] = w.hosts[0].begin(t, append(env, "NEXAR_SEEDS="), command, "bench", "-n", "2", "--op", "barrier", "--iters", "3").end(t)

			for command, out := range outputs {
				want := 0
				if transports == "" {
					want = 1
				}
				const said = "UDP does not pass to the seed"
				if n := strings.Count(out, said); n != want {
					t.Errorf("%s says %d times %q, want %d:\n%s", command, n, said, want, out)
				}
				if n := len(warning.FindAllString(out, -1)); command != "doctor" && n != want {
					t.Errorf("%s prints %d warnings about UDP or QUIC, want %d:\n%s", command, n, want, out)
				}
			}
			states := []string{"the seed at " + seed + " answers over TCP", "UDP does not pass to the seed at " + seed + ": nodes use TCP"}
			if transports != "" {
				states[1] = "UDP to the seed at " + seed + " is not tried: NEXAR_TRANSPORTS is " + transports
			}
			for _, state := range states {
				if !strings.Contains(outputs["doctor"], state) {
					t.Errorf("doctor does not print %q:\n%s", state, outputs["doctor"])
				}
			}
			for i, h := range w.hosts {
				if n := h.udpPackets(t); (n > 0) != (transports == "") {
					t.Errorf("%d UDP packets were sent to host %d", n, i)
				}
			}
		})
	}
}
