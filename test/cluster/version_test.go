package cluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
)

// versionToken is the cluster token of testdata/otherversion.
const versionToken = "nwvw-qb5h-3oh2-aymg-2djq-heue-stv2-xafu-prqy-kkop-kux6-cppc-n6sq"

// buildOtherVersion builds testdata/otherversion with the next version of the protocol, and returns
// the binary, its version and the version of this test.
func buildOtherVersion(t *testing.T) (program string, other, ours int) {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs("../../internal/wire/codec.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	const declaration = "\nconst Version = "
	before, after, found := strings.Cut(string(text), declaration)
	number, after, _ := strings.Cut(after, "\n")
	if ours, err = strconv.Atoi(number); !found || err != nil {
		t.Fatalf("%s: no declaration %q with a number (%v)", source, declaration, err)
	}
	other = ours + 1
	changed := filepath.Join(dir, "codec.go")
	if err := os.WriteFile(changed, fmt.Appendf(nil, "%s%s%d\n%s", before, declaration, other, after), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "otherversion.exe")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-overlay", name, "-o", program, "./testdata/otherversion")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build testdata/otherversion: %v\n%s", err, out)
	}
	return program, other, ours
}

// A node and a seed of different versions refuse each other over UDP and over TCP, with an error that
// names both versions. It does not matter which is newer.
func TestVersionsRefuseEachOther(t *testing.T) {
	t.Parallel()
	program, other, ours := buildOtherVersion(t)
	ctx := t.Context()
	for _, transport := range []string{"quic", "tcp"} {
		t.Run("seed/"+transport, func(t *testing.T) {
			cmd := exec.CommandContext(ctx, program, "seed")
			cmd.Stderr = os.Stderr
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				stdin.Close()
				if err := cmd.Wait(); err != nil {
					t.Errorf("the seed: %v", err)
				}
			}()
			addr := bufio.NewScanner(stdout)
			if !addr.Scan() {
				t.Fatalf("the seed prints no address: %v", addr.Err())
			}
			node, err := nexar.Join(ctx, nexar.Config{Seeds: []string{addr.Text()}, Token: versionToken, Listen: "127.0.0.1:0", Transports: []string{transport}})
			if err == nil {
				node.Close()
				t.Fatal("the node has joined a seed of another version")
			}
			want := fmt.Sprintf("the node speaks version %d of the nexar protocol, this cluster version %d", ours, other)
			if !errors.Is(err, nexar.ErrVersion) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), addr.Text()) {
				t.Errorf("error %v, want an ErrVersion of the seed at %s: %s", err, addr.Text(), want)
			}
		})
		t.Run("node/"+transport, func(t *testing.T) {
			seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, Token: versionToken})
			if err != nil {
				t.Fatal(err)
			}
			defer seed.Close()
			out, err := exec.CommandContext(ctx, program, "node", transport, seed.Addr()).CombinedOutput()
			want := fmt.Sprintf("the node speaks version %d of the nexar protocol, this cluster version %d", other, ours)
			if err != nil || !strings.HasPrefix(string(out), "true ") || !strings.Contains(string(out), want) {
				t.Errorf("the node prints %q (%v), want true and %q", out, err, want)
			}
		})
	}
}
