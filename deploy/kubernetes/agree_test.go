package kubernetes

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/launch"
	"github.com/nexar-go/nexar/launch/meet"
)

// Package launch finds the same world in the pods of an overlay as the controllers make: the ranks 0 … n-1, the names
// of the pods in their order, and one job. The seeds' ports are open to the pods.
func TestLauncherFindsTheWorld(t *testing.T) {
	for _, overlay := range overlays(t) {
		t.Run(overlay, func(t *testing.T) {
			o := load(t, overlay)
			pods := o.ranks()
			var names []string
			for _, p := range pods {
				names = append(names, p.host())
			}
			for rank, p := range pods {
				env, err := p.environment()
				if err != nil {
					t.Fatal(err)
				}
				if env["NEXAR_SEEDS"] != "" {
					checkSeeds(t, o, env["NEXAR_SEEDS"])
					if r := env["NEXAR_RANK"]; r != "" && r != strconv.Itoa(rank) {
						t.Errorf("pod %s: NEXAR_RANK is %s, want %d", p.name, r, rank)
					}
					continue
				}
				got, _, err := launch.Find(launch.Environment{Vars: env, PID: 1, Hostname: p.name, Hosts: []byte(p.hostsFile("10.0.0.9"))}, launch.Auto)
				if err != nil {
					t.Fatalf("pod %s: %v", p.name, err)
				}
				if got.Launcher != launch.Kubernetes || got.Rank != rank || got.Size != len(pods) || got.Host != rank || got.OneHost() {
					t.Errorf("pod %s: %v, want rank %d of %d", p.name, got, rank, len(pods))
				}
				for i, h := range got.Hosts {
					// A LeaderWorkerSet tells names without the domain of the cluster.
					if h != names[i] && h+".svc.cluster.local" != names[i] {
						t.Errorf("pod %s: the pod of rank %d is %q, want %q", p.name, i, h, names[i])
					}
				}
				if first, _, _ := launch.Find(launch.Environment{Vars: mustEnv(t, pods[0]), PID: 1, Hostname: pods[0].name, Hosts: []byte(pods[0].hostsFile("10.0.0.1"))}, launch.Auto); got.Job == "" || got.Job != first.Job {
					t.Errorf("pod %s: the job is %q, that of the first pod %q: want the same", p.name, got.Job, first.Job)
				}
				for _, addr := range meet.Seeds(got, 1) {
					checkOpen(t, o, p, pods[0], int(netip.MustParseAddrPort("[::]"+addr[strings.LastIndexByte(addr, ':'):]).Port()))
				}
			}
		})
	}
}

func mustEnv(t *testing.T, p pod) map[string]string {
	t.Helper()
	env, err := p.environment()
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// checkSeeds checks that NEXAR_SEEDS names the pods of the StatefulSet, and that each seed has the same list.
func checkSeeds(t *testing.T, o *objects, list string) {
	t.Helper()
	var want []string
	for _, p := range o.seeds() {
		want = append(want, p.name+"."+p.subdomain+":"+nexar.SeedPort)
		args := p.args(t)
		for _, arg := range []string{"--peers=" + list, "--advertise=" + want[len(want)-1]} {
			if !slices.Contains(args, arg) {
				t.Errorf("seed %s has the arguments %q, want %s", p.name, args, arg)
			}
		}
	}
	if got := strings.Split(list, ","); !slices.Equal(got, want) || len(want) != 3 {
		t.Errorf("NEXAR_SEEDS names %q, want the pods %q", got, want)
	}
}

// The network policy lets ranks and seeds reach each other at all of their ports, and at no others.
func TestNetworkPolicy(t *testing.T) {
	for _, overlay := range overlays(t) {
		o := load(t, overlay)
		ranks, seeds := o.ranks(), o.seeds()
		_, listen, err := net.SplitHostPort(mustEnv(t, ranks[0])["NEXAR_LISTEN"])
		port, _ := strconv.Atoi(listen)
		if err != nil || port == 0 {
			t.Errorf("%s: NEXAR_LISTEN has the port %q, want a fixed one, so that the policy can name it", overlay, listen)
		}
		checkOpen(t, o, ranks[0], ranks[1], port)
		seedPort, _ := strconv.Atoi(nexar.SeedPort)
		for _, s := range seeds {
			checkOpen(t, o, ranks[0], s, seedPort)
			checkOpen(t, o, s, ranks[0], port) // It checks the addresses of nodes.
			checkOpen(t, o, seeds[0], s, seedPort)
		}
		for _, closed := range []int{22, 19_999, 30_000, 8081} {
			if open := isOpen(o, ranks[0], ranks[1], corev1.ProtocolTCP, closed); open {
				t.Errorf("%s: port %d of ranks is open, want it closed", overlay, closed)
			}
		}
		stranger := pod{name: "stranger", labels: map[string]string{"app.kubernetes.io/name": "other"}}
		if isOpen(o, stranger, ranks[0], corev1.ProtocolTCP, port) {
			t.Errorf("%s: other pods reach ranks", overlay)
		}
	}
}

// checkOpen checks that one pod reaches another at a port of TCP and UDP.
func checkOpen(t *testing.T, o *objects, from, to pod, port int) {
	t.Helper()
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		if !isOpen(o, from, to, protocol, port) {
			t.Errorf("the policy does not let %s reach %s at port %d of %s", from.name, to.name, port, protocol)
		}
	}
}

// isOpen reports whether the policies let a pod connect to another one.
func isOpen(o *objects, from, to pod, protocol corev1.Protocol, port int) bool {
	out, in := true, true
	for _, policy := range o.policies {
		if selects(&policy.Spec.PodSelector, from) {
			out = slices.ContainsFunc(policy.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
				return allows(r.To, r.Ports, to, protocol, port)
			})
		}
		if selects(&policy.Spec.PodSelector, to) {
			in = slices.ContainsFunc(policy.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
				return allows(r.From, r.Ports, from, protocol, port)
			})
		}
	}
	return out && in
}

func selects(s *metav1.LabelSelector, p pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(p.labels))
}

func allows(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, peer pod, protocol corev1.Protocol, port int) bool {
	return (len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool { return selects(p.PodSelector, peer) })) &&
		slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
			last := p.Port.IntValue()
			if p.EndPort != nil {
				last = int(*p.EndPort)
			}
			return *p.Protocol == protocol && p.Port.IntValue() <= port && port <= last
		})
}

// The pods have a name in the DNS before they are ready: the headless Service of their subdomain selects them.
func TestServices(t *testing.T) {
	for _, overlay := range overlays(t) {
		o := load(t, overlay)
		for _, p := range append(o.ranks(), o.seeds()...) {
			if len(o.lws) > 0 {
				continue // Its controller makes the Service.
			}
			i := slices.IndexFunc(o.services, func(s *corev1.Service) bool { return s.Name == p.subdomain })
			if i < 0 {
				t.Errorf("%s: pod %s has the subdomain %q, which is no Service", overlay, p.name, p.subdomain)
				continue
			}
			s := o.services[i]
			if s.Spec.ClusterIP != corev1.ClusterIPNone || !s.Spec.PublishNotReadyAddresses || !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.labels)) {
				t.Errorf("%s: Service %s: %+v: want a headless one that selects pod %s and publishes it before it is ready", overlay, s.Name, s.Spec, p.name)
			}
		}
	}
}

// The numbers of ranks agree: those of the workload, of the seeds, and of the budget for evictions.
func TestNumbersOfRanks(t *testing.T) {
	for _, overlay := range overlays(t) {
		checkNumbers(t, overlay, load(t, overlay))
	}
}

func checkNumbers(t *testing.T, overlay string, o *objects) {
	t.Helper()
	ranks, least := o.ranks(), len(o.ranks())
	for _, p := range ranks {
		if env := mustEnv(t, p); env["NEXAR_SEEDS"] == "" && len(o.lws) == 0 && env["NEXAR_WORLD"] != strconv.Itoa(len(ranks)) {
			t.Errorf("%s: NEXAR_WORLD of pod %s is %q, want %d", overlay, p.name, env["NEXAR_WORLD"], len(ranks))
		}
	}
	for _, s := range o.seeds() {
		args := s.args(t)
		if !slices.Contains(args, fmt.Sprint("--world=", len(ranks))) {
			t.Errorf("%s: seed %s has the arguments %q, want --world=%d", overlay, s.name, args, len(ranks))
		}
		for _, arg := range args {
			if number, ok := strings.CutPrefix(arg, "--min="); ok {
				least, _ = strconv.Atoi(number)
			}
		}
	}
	budgets := 0
	for _, b := range o.budgets {
		if !selects(b.Spec.Selector, ranks[0]) {
			continue
		}
		budgets++
		// A percentage or maxUnavailable needs a controller with the subresource scale.
		if b.Spec.MinAvailable == nil || b.Spec.MinAvailable.StrVal != "" || b.Spec.MinAvailable.IntValue() != least {
			t.Errorf("%s: the budget of the ranks is %+v, want minAvailable: %d", overlay, b.Spec, least)
		}
	}
	if budgets != 1 {
		t.Errorf("%s: %d budgets select the ranks, want 1", overlay, budgets)
	}
}

// The probes of seeds use the port of --health, at the paths that a seed serves.
func TestProbes(t *testing.T) {
	for _, overlay := range overlays(t) {
		for _, s := range load(t, overlay).seeds() {
			c := s.spec.Containers[0]
			health := ""
			for _, p := range c.Ports {
				if p.Name == c.LivenessProbe.HTTPGet.Port.StrVal {
					health = fmt.Sprint(p.ContainerPort)
				}
			}
			if !slices.Contains(s.args(t), "--health=:"+health) {
				t.Errorf("%s: seed %s is probed at port %q, which its arguments %q do not name", overlay, s.name, health, s.args(t))
			}
			if l, r := c.LivenessProbe.HTTPGet, c.ReadinessProbe.HTTPGet; l.Path != "/healthz" || r.Path != "/readyz" || l.Port != r.Port {
				t.Errorf("%s: seed %s is probed at %+v and %+v, want /healthz and /readyz of one port", overlay, s.name, l, r)
			}
		}
	}
}

// Containers have no privileges, and no file of theirs can be changed except in volumes.
func TestSecurity(t *testing.T) {
	for _, overlay := range overlays(t) {
		o := load(t, overlay)
		for _, p := range append(o.ranks(), o.seeds()...) {
			if len(p.spec.Containers) != 1 || len(p.spec.InitContainers) != 0 {
				t.Fatalf("%s: pod %s has %d containers, want 1", overlay, p.name, len(p.spec.Containers))
			}
			s, c := p.spec.SecurityContext, p.spec.Containers[0].SecurityContext
			if !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
				*c.AllowPrivilegeEscalation || *c.Privileged || !*c.ReadOnlyRootFilesystem || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) > 0 {
				t.Errorf("%s: pod %s has the security contexts %+v and %+v, want no privileges", overlay, p.name, s, c)
			}
			if p.spec.HostNetwork || p.spec.HostPID || p.spec.HostIPC || *p.spec.AutomountServiceAccountToken {
				t.Errorf("%s: pod %s uses the host, or has a token of a service account", overlay, p.name)
			}
			for _, v := range p.spec.Volumes {
				if v.HostPath != nil || v.EmptyDir != nil && v.EmptyDir.SizeLimit.IsZero() {
					t.Errorf("%s: pod %s: volume %s: want no directory of the host, and a limit of its size", overlay, p.name, v.Name)
				}
			}
		}
		for _, p := range o.ranks() {
			i := slices.IndexFunc(p.spec.Volumes, func(v corev1.Volume) bool {
				return v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory
			})
			mounted := i >= 0 && slices.ContainsFunc(p.spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.Name == p.spec.Volumes[i].Name && m.MountPath == "/dev/shm"
			})
			limit := p.spec.Containers[0].Resources.Limits.Memory()
			if !mounted || p.spec.Volumes[i].EmptyDir.SizeLimit.Cmp(*limit) >= 0 {
				t.Errorf("%s: pod %s: want memory at /dev/shm, less than the %v of the container", overlay, p.name, limit)
			}
		}
	}
}

// Only root and the group of the pod can read the token.
func TestTokenVolume(t *testing.T) {
	for _, overlay := range overlays(t) {
		o := load(t, overlay)
		for _, p := range append(o.ranks(), o.seeds()...) {
			file, volume := p.tokenFile()
			if volume == nil || *volume.DefaultMode != 0o440 || p.spec.SecurityContext.FSGroup == nil || volume.SecretName != "nexar-token" {
				t.Errorf("%s: pod %s: volume %+v: want the mode 0440 and a group of the pod", overlay, p.name, volume)
			}
			if got := mustEnv(t, p)["NEXAR_CLUSTER_TOKEN_FILE"]; got != file {
				t.Errorf("%s: pod %s: NEXAR_CLUSTER_TOKEN_FILE is %q, the token is at %q", overlay, p.name, got, file)
			}
		}
	}
}
