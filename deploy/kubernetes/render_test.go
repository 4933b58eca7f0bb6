package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	lws "sigs.k8s.io/lws/api/leaderworkerset/v1"
	"sigs.k8s.io/yaml"
)

// overlays are the folders that users apply.
func overlays(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob("overlays/*")
	if err != nil || len(list) < 5 {
		t.Fatalf("overlays: %v, error %v: want at least 5", list, err)
	}
	return list
}

// objects are the decoded objects of an overlay.
type objects struct {
	services     []*corev1.Service
	policies     []*networkingv1.NetworkPolicy
	budgets      []*policyv1.PodDisruptionBudget
	jobs         []*batchv1.Job
	statefulSets []*appsv1.StatefulSet
	jobSets      []*jobset.JobSet
	lws          []*lws.LeaderWorkerSet
}

// render renders a folder as "kubectl apply -k" does, and returns each object as YAML.
func render(t *testing.T, folder string) (documents []string) {
	t.Helper()
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v", folder, err)
	}
	for _, r := range m.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(text))
	}
	return documents
}

// decode adds an object to o. It refuses unknown and repeated fields.
func (o *objects) decode(document string) error {
	var kind struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
		return err
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "v1 Service":
		return add(&o.services, document)
	case "networking.k8s.io/v1 NetworkPolicy":
		return add(&o.policies, document)
	case "policy/v1 PodDisruptionBudget":
		return add(&o.budgets, document)
	case "batch/v1 Job":
		return add(&o.jobs, document)
	case "apps/v1 StatefulSet":
		return add(&o.statefulSets, document)
	case "jobset.x-k8s.io/v1alpha2 JobSet":
		return add(&o.jobSets, document)
	case "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet":
		return add(&o.lws, document)
	}
	return fmt.Errorf("unknown kind %s of %s", kind.Kind, kind.APIVersion)
}

func add[T any](list *[]*T, document string) error {
	object := new(T)
	*list = append(*list, object)
	return yaml.UnmarshalStrict([]byte(document), object)
}

// load renders and decodes a folder.
func load(t *testing.T, folder string) *objects {
	t.Helper()
	o := new(objects)
	for _, document := range render(t, folder) {
		if err := o.decode(document); err != nil {
			t.Fatalf("%s: %v\n%s", folder, err, document)
		}
	}
	return o
}

// Every object of every overlay has the fields of its type alone.
func TestOverlaysAreDecodedStrictly(t *testing.T) {
	for _, overlay := range overlays(t) {
		for _, document := range render(t, overlay) {
			if err := new(objects).decode(document); err != nil {
				t.Errorf("%s: %v\n%s", overlay, err, document)
			}
			// An unknown field at the deepest place, a volume or a port, is found.
			for _, known := range []string{"defaultMode: ", "targetPort: ", "protocol: ", "minAvailable: ", "maxUnavailable: ", "publishNotReadyAddresses: "} {
				if wrong := strings.Replace(document, known, "x"+known, 1); wrong != document && new(objects).decode(wrong) == nil {
					t.Errorf("%s: the field %q is not noticed:\n%s", overlay, "x"+known, document)
				}
			}
		}
	}
}

// Each folder has a description in its first line.
func TestOverlaysHaveComments(t *testing.T) {
	for _, folder := range append(overlays(t), "base", "seeds") {
		text, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
		if err != nil || !strings.HasPrefix(string(text), "# ") {
			t.Errorf("%s/kustomization.yaml begins with %.20q, error %v: want a comment", folder, text, err)
		}
	}
}
