package launch

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/nexar-go/nexar/launch/internal/text"
)

// hostsMax limits the names of pods that are listed.
const hostsMax = 1024

// Pod names the pod of this process in an indexed Job, a JobSet or a LeaderWorkerSet. A pod that Kubernetes makes in place of this one has the same
// name. It is empty elsewhere.
func (e Environment) Pod() string {
	index := cmp.Or(e.Vars["JOB_COMPLETION_INDEX"], e.Vars["LWS_WORKER_INDEX"])
	if index == "" {
		return ""
	}
	name, _, _ := strings.Cut(e.Hostname, ".")
	if domain, ok := domain(e.Hosts, e.Hostname); ok {
		name += "." + domain
	}
	return index + "/" + name
}

// findKubernetes recognizes pods of a LeaderWorkerSet, an indexed Job or a JobSet.
func findKubernetes(env Environment, over overrule) answer {
	r := &reader{vars: env.Vars}
	switch {
	case r.has("LWS_LEADER_ADDRESS"):
		return leaderWorkerSet(r)
	case r.has("JOB_COMPLETION_INDEX"):
		return indexedJob(env, r, over)
	}
	return absent("JOB_COMPLETION_INDEX and LWS_LEADER_ADDRESS are not set")
}

// leaderWorkerSet answers for a pod of a group: the leader SET-GROUP, or its worker SET-GROUP-INDEX.
func leaderWorkerSet(r *reader) answer {
	r.need("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX")
	leader := r.text("LWS_LEADER_ADDRESS")
	pod, domain, _ := strings.Cut(leader, ".")
	p := Process{
		Launcher: Kubernetes, Job: leader,
		Rank: r.number("LWS_WORKER_INDEX"), Size: r.number("LWS_GROUP_SIZE"),
		LocalSize: 1, Hosts: []string{leader},
	}
	p.Host = p.Rank
	for i := 1; i < min(p.Size, hostsMax); i++ {
		p.Hosts = append(p.Hosts, fmt.Sprintf("%s-%d.%s", pod, i, domain))
	}
	return r.answer(p)
}

// indexedJob answers for a pod with the hostname JOB-INDEX. If NEXAR_JOBSET_JOBS is set, the Jobs of a JobSet make one
// world, with the hostnames SET-REPLICATEDJOB-JOB-INDEX: the pods of Job 0 have the lowest ranks.
func indexedJob(env Environment, r *reader, over overrule) answer {
	index := r.number("JOB_COMPLETION_INDEX")
	jobs := r.optional("NEXAR_JOBSET_JOBS", 1)
	if r.err != nil {
		return answer{err: r.err}
	}
	if over.size == 0 {
		return unusable("JOB_COMPLETION_INDEX is %d, but NEXAR_WORLD is not set: Kubernetes does not tell pods how many there are: "+
			"set NEXAR_WORLD to the completions of the Job", index)
	}
	if jobs < 1 || over.size%jobs != 0 {
		return unusable("NEXAR_WORLD is %d and NEXAR_JOBSET_JOBS is %d: expected a multiple of it: set NEXAR_WORLD to the completions of all Jobs together", over.size, jobs)
	}
	pods := over.size / jobs // of each Job
	host, _, _ := strings.Cut(env.Hostname, ".")
	prefix, ok := strings.CutSuffix(host, "-"+strconv.Itoa(index))
	if !ok || prefix == "" {
		return unusable("the hostname is %s, but JOB_COMPLETION_INDEX is %d: expected a hostname such as job-%d: leave the hostname of the pod to the Job, or set NEXAR_SEEDS",
			text.Quote(env.Hostname), index, index)
	}
	suffix, ok := domain(env.Hosts, env.Hostname)
	if !ok {
		return unusable("/etc/hosts has no domain for %s: expected the subdomain of a headless Service, by which pods find each other: "+
			"set spec.template.spec.subdomain of the Job to its name, or set NEXAR_SEEDS", text.Quote(host))
	}
	job := 0
	if jobs > 1 {
		last := strings.LastIndexByte(prefix, '-')
		if job, ok = parseNumber(prefix[last+1:]); !ok || last < 1 || job >= jobs {
			return unusable("the hostname is %s, and NEXAR_JOBSET_JOBS is %d: expected the hostname SET-REPLICATEDJOB-JOB-INDEX of a JobSet with JOB below %d: "+
				"correct or unset NEXAR_JOBSET_JOBS", text.Quote(env.Hostname), jobs, jobs)
		}
		prefix = prefix[:last]
	}
	if index >= pods {
		return unusable("JOB_COMPLETION_INDEX is %d, but NEXAR_WORLD is %d for %d Jobs: expected an index below %d: set NEXAR_WORLD to the completions of all Jobs together",
			index, over.size, jobs, pods)
	}
	p := Process{
		Launcher: Kubernetes, Job: prefix + "." + suffix,
		Rank: job*pods + index, Size: over.size, LocalSize: 1, Host: job*pods + index,
	}
	for i := range min(p.Size, hostsMax) {
		name := fmt.Sprintf("%s-%d", prefix, i%pods)
		if jobs > 1 {
			name = fmt.Sprintf("%s-%d-%d", prefix, i/pods, i%pods)
		}
		p.Hosts = append(p.Hosts, name+"."+suffix)
	}
	return answer{process: p}
}
