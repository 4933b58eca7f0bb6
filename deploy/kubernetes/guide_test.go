package kubernetes

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"
)

const guide = "../../docs/guide/kubernetes.md"

// kubectl records the arguments of each call, and the token of a Secret.
const kubectl = `#!/bin/sh
printf '%s\n' "$@" >>calls
if [ "$1" = create ]; then cat token >>secret; fi
echo >>calls
`

// The commands of the guide make a Secret that the pods mount, and apply the kustomization of the guide, whose numbers agree.
// Each path and each name that they use exists.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	job, err := filepath.Abs("overlays/job")
	if err == nil {
		job, err = filepath.Rel(dir, job)
	}
	if err != nil {
		t.Fatal(err)
	}
	kustomization := blocks(t, string(text), "yaml")[0]
	const remote = "https://github.com/nexar-go/nexar//deploy/kubernetes/overlays/job?ref=v0.1.0"
	if !strings.Contains(kustomization, remote) {
		t.Fatalf("the kustomization of the guide does not have %s:\n%s", remote, kustomization)
	}
	kustomization = strings.Replace(kustomization, remote, job, 1) // Kustomize takes relative paths alone.
	for name, text := range map[string]string{"kustomization.yaml": kustomization, "kubectl": kubectl} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.CommandContext(t.Context(), "sh", "-e", "-c", strings.Join(blocks(t, string(text), "sh"), "\n"))
	run.Dir, run.Env = dir, append(os.Environ(), "PATH="+dir+":"+programs.Dir(t)+":"+os.Getenv("PATH"))
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("the commands of the guide: %v\n%s", err, out)
	}
	if secret, err := os.ReadFile(filepath.Join(dir, "secret")); err != nil || len(strings.TrimSpace(string(secret))) < 32 {
		t.Errorf("the Secret has %d bytes, error %v: want a token", len(secret), err)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	for call := range strings.SplitSeq(strings.TrimSuffix(string(calls), "\n\n"), "\n\n") {
		checkCall(t, dir, strings.Split(call, "\n"))
	}
	o := load(t, dir)
	checkNumbers(t, "the kustomization of the guide", o)
	for _, p := range o.ranks() {
		if got, want := p.spec.Containers[0].Image, "ghcr.io/you/train:v7"; got != want || len(o.ranks()) != 8 {
			t.Errorf("%d pods run %s, want 8 with %s", len(o.ranks()), got, want)
		}
	}
}

// checkCall checks a call of kubectl.
func checkCall(t *testing.T, dir string, args []string) {
	t.Helper()
	elastic := load(t, "overlays/jobset-elastic")
	switch args[0] {
	case "create":
		_, volume := elastic.ranks()[0].tokenFile()
		if want := []string{"create", "secret", "generic", volume.SecretName, "--from-file=token"}; !slices.Equal(args, want) {
			t.Errorf("kubectl %q, want %q", args, want)
		}
	case "apply", "delete":
		if want := []string{"-k", "."}; !slices.Equal(args[1:], want) {
			t.Errorf("kubectl %q, want %q", args, want)
		}
	case "logs":
		if i := slices.Index(args, "-l"); i < 0 || !strings.Contains(fmt.Sprint(elastic.ranks()[0].labels), strings.Replace(args[i+1], "=", ":", 1)) {
			t.Errorf("kubectl %q selects no rank", args)
		}
	case "patch":
		var job batchv1.Job
		err := yaml.UnmarshalStrict([]byte(args[len(args)-1]), &job)
		name, _, _ := strings.Cut(elastic.ranks()[0].host(), ".")
		if err != nil || args[1] != "job" || args[2]+"-0" != name || *job.Spec.Completions != *job.Spec.Parallelism || !json.Valid([]byte(args[len(args)-1])) {
			t.Errorf("kubectl %q: %v: want an equal number of completions and pods of the Job of %s", args, err, name)
		}
	default:
		t.Errorf("kubectl %q is not checked", args)
	}
}

// blocks returns the blocks of a language.
func blocks(t *testing.T, text, language string) (list []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	if len(list) == 0 {
		t.Fatalf("no block of %s in the guide", language)
	}
	return list
}

// The table of the guide has all overlays, and its ports are those of the manifests.
func TestGuideIsComplete(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	for _, overlay := range overlays(t) {
		if name := filepath.Base(overlay); !strings.Contains(string(text), "\n| `"+name+"` |") {
			t.Errorf("the guide does not describe the overlay %s", name)
		}
	}
	for _, p := range load(t, "base").policies[0].Spec.Ingress[0].Ports {
		port := fmt.Sprint(p.Port.IntValue())
		if p.EndPort != nil {
			port += fmt.Sprint("–", *p.EndPort)
		}
		if !strings.Contains(string(text), "\n| "+port+", UDP and TCP |") {
			t.Errorf("the guide does not name the port %s", port)
		}
	}
}
