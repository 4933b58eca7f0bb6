package kubernetes

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/internal/testlog"
)

// An apiServer is the API of Kubernetes, without controllers and kubelets: it validates, completes and stores objects.
type apiServer struct {
	t          *testing.T
	client     http.Client
	url, token string
	etcd, kube testlog.Buffer
	failed     atomic.Pointer[string] // that a program has ended
}

// startAPIServer starts the programs that the script install has built.
func startAPIServer(t *testing.T) *apiServer {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(cache, "nexar-kubernetes", "*", "kube-apiserver"))
	require.Have(t, "kube-apiserver", err == nil && len(found) > 0, "deploy/kubernetes/install builds kube-apiserver and etcd in minutes")
	programs, dir := filepath.Dir(found[len(found)-1]), t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	s := &apiServer{t: t, token: rand.Text()}
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.WriteFile(in("key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600),
		os.WriteFile(in("tokens"), []byte(s.token+",admin,admin,system:masters\n"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	store, peers, addr := "http://"+testhost.FreePort(t), "http://"+testhost.FreePort(t), testhost.FreePort(t)
	_, port, _ := net.SplitHostPort(addr)
	s.url = "https://" + addr
	run := func(output *testlog.Buffer, program string, args ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(programs, program), args...)
		cmd.Stdout, cmd.Stderr, cmd.Dir = output, output, dir
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := cmd.Wait(); t.Context().Err() == nil {
				s.failed.Store(new(fmt.Sprintf("%s has ended: %v", program, err)))
			}
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-ended
		})
	}
	run(&s.etcd, "etcd", "--data-dir="+in("etcd"), "--unsafe-no-fsync", "--log-level=error", "--listen-client-urls="+store, "--advertise-client-urls="+store,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
	run(&s.kube, "kube-apiserver", "--etcd-servers="+store, "--cert-dir="+in("certificates"), "--bind-address=127.0.0.1", "--advertise-address=10.0.0.1", "--secure-port="+port,
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/24", "--token-auth-file="+in("tokens"), "--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount", "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+in("key"), "--service-account-signing-key-file="+in("key"))
	roots := x509.NewCertPool()
	s.waitFor("kube-apiserver has a certificate", func() bool {
		text, err := os.ReadFile(in("certificates/apiserver.crt"))
		return err == nil && roots.AppendCertsFromPEM(text)
	})
	s.client = http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "kubernetes"}}, Timeout: patience}
	t.Cleanup(s.client.CloseIdleConnections)
	s.waitFor("kube-apiserver is ready", func() bool {
		status, _, _ := s.call(http.MethodGet, "/readyz", "", nil)
		return status == http.StatusOK
	})
	return s
}

// waitFor waits for a condition as long as both programs run.
func (s *apiServer) waitFor(what string, ok func() bool) {
	s.t.Helper()
	output := func() string { return s.etcd.String() + s.kube.String() }
	waitFor(s.t, what, func() bool {
		if text := s.failed.Load(); text != nil {
			s.t.Fatalf("%s\n%s", *text, output())
		}
		return ok()
	}, output)
}

// call calls the API. The text is the warnings of the answer and its body.
func (s *apiServer) call(method, path, kind string, body []byte) (status int, warnings []string, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("Content-Type", kind)
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return resp.StatusCode, resp.Header.Values("Warning"), string(answer)
}

// resources are the paths of kinds.
var resources = map[string]string{
	"v1 Namespace":                                     "/api/v1/namespaces/",
	"v1 Service":                                       "/api/v1/namespaces/%s/services/",
	"networking.k8s.io/v1 NetworkPolicy":               "/apis/networking.k8s.io/v1/namespaces/%s/networkpolicies/",
	"policy/v1 PodDisruptionBudget":                    "/apis/policy/v1/namespaces/%s/poddisruptionbudgets/",
	"batch/v1 Job":                                     "/apis/batch/v1/namespaces/%s/jobs/",
	"apps/v1 StatefulSet":                              "/apis/apps/v1/namespaces/%s/statefulsets/",
	"jobset.x-k8s.io/v1alpha2 JobSet":                  "/apis/jobset.x-k8s.io/v1alpha2/namespaces/%s/jobsets/",
	"leaderworkerset.x-k8s.io/v1 LeaderWorkerSet":      "/apis/leaderworkerset.x-k8s.io/v1/namespaces/%s/leaderworkersets/",
	"apiextensions.k8s.io/v1 CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/",
}

// apply applies an object as "kubectl apply --server-side --validate=strict" does.
func (s *apiServer) apply(namespace, document string) (status int, warnings []string, text string) {
	s.t.Helper()
	var object struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
	}
	if err := yaml.Unmarshal([]byte(document), &object); err != nil {
		s.t.Fatal(err)
	}
	path, known := resources[object.APIVersion+" "+object.Kind]
	if !known {
		s.t.Fatalf("unknown kind %s of %s", object.Kind, object.APIVersion)
	}
	if strings.Contains(path, "%s") {
		path = fmt.Sprintf(path, namespace)
	}
	return s.call(http.MethodPatch, path+object.Metadata.Name+"?fieldManager=test&fieldValidation=Strict", "application/apply-patch+yaml", []byte(document))
}

// mustApply applies an object, and demands that it is made without a warning.
func (s *apiServer) mustApply(namespace, document string) {
	s.t.Helper()
	if status, warnings, text := s.apply(namespace, document); status != http.StatusCreated || len(warnings) > 0 {
		s.t.Fatalf("namespace %s: status %d, warnings %q: %s\n%s", namespace, status, warnings, text, document)
	}
}

// makeNamespace makes a namespace that refuses pods without the restrictions of the Pod Security Standards.
func (s *apiServer) makeNamespace(name string) {
	s.t.Helper()
	s.mustApply("", fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/warn: restricted}}}", name))
}

// define makes the custom resources of JobSet and LeaderWorkerSet, by their own definitions.
func (s *apiServer) define() {
	s.t.Helper()
	for module, file := range map[string]string{
		"sigs.k8s.io/jobset": "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml", "sigs.k8s.io/lws": "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
	} {
		dir, err := exec.CommandContext(s.t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			s.t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), file))
		if err != nil {
			s.t.Fatal(err)
		}
		s.mustApply("", string(text))
	}
	for _, kind := range []string{"jobset.x-k8s.io/v1alpha2 JobSet", "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet"} {
		s.waitFor(kind+" is served", func() bool {
			status, _, _ := s.call(http.MethodGet, strings.TrimSuffix(fmt.Sprintf(resources[kind], "default"), "/"), "", nil)
			return status == http.StatusOK
		})
	}
}

// Kubernetes accepts each object of each overlay, without an unknown field and without a warning, and the pods in namespaces with the
// restricted Pod Security Standard. It refuses objects with mistakes.
func TestAPIServer(t *testing.T) {
	t.Parallel()
	s := startAPIServer(t)
	s.define()
	for _, overlay := range overlays(t) {
		namespace := filepath.Base(overlay)
		s.makeNamespace(namespace)
		for _, document := range render(t, overlay) {
			s.mustApply(namespace, document)
			for _, known := range []string{"targetPort: ", "minAvailable: ", "completions: ", "serviceName: ", "size: ", "podSelector: ", "policyTypes:"} {
				if wrong := strings.Replace(document, known, "x"+known, 1); wrong != document {
					if status, _, text := s.apply(namespace, wrong); status < 400 || !strings.Contains(text, "field not declared in schema") {
						t.Errorf("%s: with the field %q: status %d: %s", overlay, "x"+known, status, text)
					}
				}
			}
		}
		o := load(t, overlay)
		pods := append(o.ranks(), o.seeds()...)
		if len(pods) == 0 {
			t.Errorf("%s has no pods", overlay)
		}
		for _, p := range pods {
			if status, warnings, text := s.makePod(namespace, p); status != http.StatusCreated || len(warnings) > 0 {
				t.Errorf("%s: pod %s: status %d, warnings %q: %s", overlay, p.name, status, warnings, text)
			}
		}
		wrong := pods[0]
		wrong.spec = *pods[0].spec.DeepCopy()
		wrong.spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = new(true)
		if status, _, text := s.makePod(namespace, wrong); status != http.StatusForbidden || !strings.Contains(text, "violates PodSecurity") {
			t.Errorf("%s: a pod that may get more privileges: status %d: %s", overlay, status, text)
		}
	}
}

// makePod asks whether a pod can be made, and does not make it.
func (s *apiServer) makePod(namespace string, p pod) (status int, warnings []string, text string) {
	s.t.Helper()
	spec := p.spec.DeepCopy()
	for _, mount := range spec.Containers[0].VolumeMounts {
		if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name }) { // A StatefulSet adds the volumes of its claims.
			claim := corev1.PersistentVolumeClaimVolumeSource{ClaimName: mount.Name + "-" + p.name}
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: mount.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &claim}})
		}
	}
	body, err := json.Marshal(corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: p.name, Labels: p.labels, Annotations: p.annotations}, Spec: *spec,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.call(http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods?dryRun=All&fieldValidation=Strict", "application/json", body)
}
