package kubernetes

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/nexar-go/nexar"
)

const (
	namespace = "ml"
	domain    = "." + namespace + ".svc.cluster.local"
	// jobUID and setUID stand for the identities that Kubernetes gives.
	jobUID = "6f1a3f0e-7d0c-4a2b-9a57-0c5bb2a0f2d4"
	setUID = "0d9a2c64-9f39-4e57-8c8f-0a3f6a3cc0be"
)

// A pod is one that the controllers of Kubernetes make of an overlay.
type pod struct {
	name        string // in the DNS, without the domain
	subdomain   string
	index       int // of the Job
	labels      map[string]string
	annotations map[string]string
	injected    map[string]string // variables
	spec        corev1.PodSpec
}

// host is the name of the pod in the DNS.
func (p pod) host() string { return p.name + "." + p.subdomain + domain }

// ranks returns the pods of an overlay that run the program, by rank.
func (o *objects) ranks() (pods []pod) {
	for _, j := range o.jobs {
		pods = append(pods, podsOfJob(j.Name, j.Spec, nil)...)
	}
	for _, s := range o.jobSets {
		for _, r := range s.Spec.ReplicatedJobs {
			for job := range int(r.Replicas) {
				labels := map[string]string{
					jobset.JobSetNameKey: s.Name, jobset.JobSetUIDKey: setUID, jobset.ReplicatedJobNameKey: r.Name, jobset.ReplicatedJobReplicas: strconv.Itoa(int(r.Replicas)),
					jobset.JobIndexKey: strconv.Itoa(job), "jobset.sigs.k8s.io/restart-attempt": "0",
				}
				of := podsOfJob(fmt.Sprintf("%s-%s-%d", s.Name, r.Name, job), r.Template.Spec, labels)
				for i := range of {
					of[i].subdomain = s.Spec.Network.Subdomain
				}
				pods = append(pods, of...)
			}
		}
	}
	for _, l := range o.lws {
		t := l.Spec.LeaderWorkerTemplate
		for i := range int(*t.Size) {
			p := pod{name: l.Name + "-0", subdomain: l.Name, index: i, labels: t.WorkerTemplate.Labels, spec: t.WorkerTemplate.Spec, injected: map[string]string{
				"LWS_LEADER_ADDRESS": l.Name + "-0." + l.Name + "." + namespace, "LWS_GROUP_SIZE": strconv.Itoa(int(*t.Size)), "LWS_WORKER_INDEX": strconv.Itoa(i),
			}}
			if i > 0 {
				p.name += fmt.Sprint("-", i)
			}
			pods = append(pods, p)
		}
	}
	return pods
}

func podsOfJob(name string, spec batchv1.JobSpec, labels map[string]string) (pods []pod) {
	for i := range int(*spec.Completions) {
		p := pod{
			name: fmt.Sprintf("%s-%d", name, i), subdomain: spec.Template.Spec.Subdomain, index: i, spec: spec.Template.Spec,
			labels: maps.Clone(spec.Template.Labels), annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: strconv.Itoa(i)},
			injected: map[string]string{"JOB_COMPLETION_INDEX": strconv.Itoa(i)},
		}
		maps.Copy(p.labels, labels)
		p.labels[batchv1.ControllerUidLabel], p.labels[batchv1.JobNameLabel], p.labels[batchv1.JobCompletionIndexAnnotation] = jobUID, name, strconv.Itoa(i)
		pods = append(pods, p)
	}
	return pods
}

// seeds returns the pods of the StatefulSets of an overlay.
func (o *objects) seeds() (pods []pod) {
	for _, s := range o.statefulSets {
		for i := range int(*s.Spec.Replicas) {
			pods = append(pods, pod{name: fmt.Sprintf("%s-%d", s.Name, i), subdomain: s.Spec.ServiceName, index: i, labels: s.Spec.Template.Labels, spec: s.Spec.Template.Spec})
		}
	}
	return pods
}

// environment returns the variables of the container, as the kubelet sets them.
func (p pod) environment() (map[string]string, error) {
	env := maps.Clone(p.injected)
	if env == nil {
		env = make(map[string]string)
	}
	for _, v := range p.spec.Containers[0].Env {
		value := expand(v.Value, env)
		if v.ValueFrom != nil {
			var known bool
			switch field := v.ValueFrom.FieldRef.FieldPath; {
			case field == "metadata.name":
				value, known = p.name, true
			case strings.HasPrefix(field, "metadata.labels['"):
				value, known = p.labels[field[len("metadata.labels['"):len(field)-2]]
			case strings.HasPrefix(field, "metadata.annotations['"):
				value, known = p.annotations[field[len("metadata.annotations['"):len(field)-2]]
			}
			if !known || value == "" {
				return nil, fmt.Errorf("pod %s: %s is from %q, which it does not have", p.name, v.Name, v.ValueFrom.FieldRef.FieldPath)
			}
		}
		env[v.Name] = value
	}
	return env, nil
}

// environ is environment in the form of a process.
func (p pod) environ(t testing.TB) (list []string) {
	t.Helper()
	env, err := p.environment()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

var reference = regexp.MustCompile(`\$\(([A-Za-z_]+)\)`)

// expand replaces references to variables that are already set.
func expand(text string, env map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(r string) string {
		if value, ok := env[r[2:len(r)-1]]; ok {
			return value
		}
		return r
	})
}

// args returns the arguments of the container.
func (p pod) args(t testing.TB) (args []string) {
	t.Helper()
	env, err := p.environment()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range p.spec.Containers[0].Args {
		args = append(args, expand(a, env))
	}
	return args
}

// tokenFile returns the path of the token in the container, and its volume.
func (p pod) tokenFile() (file string, volume *corev1.SecretVolumeSource) {
	for _, v := range p.spec.Volumes {
		if v.Secret == nil {
			continue
		}
		for _, m := range p.spec.Containers[0].VolumeMounts {
			if m.Name == v.Name {
				return path.Join(m.MountPath, "token"), v.Secret
			}
		}
	}
	return "", nil
}

// hostsFile returns the file /etc/hosts that the kubelet writes.
func (p pod) hostsFile(addr string) string {
	return fmt.Sprintf("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n%s\t%s\t%s\n", addr, p.host(), p.name)
}

// Every variable that begins with NEXAR_ is known.
func TestVariablesAreKnown(t *testing.T) {
	for _, overlay := range overlays(t) {
		o := load(t, overlay)
		for _, p := range append(o.ranks(), o.seeds()...) {
			for _, problem := range nexar.CheckEnviron(p.environ(t)) {
				t.Errorf("%s: pod %s: %s (%s)", overlay, p.name, problem.Text, problem.Fix)
			}
		}
	}
}
