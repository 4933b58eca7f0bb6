package launch

import (
	"fmt"
	"net"
)

// findTorchrun recognizes the variables that torch.distributed reads. torchrun sets more than other
// launchers of PyTorch, such as the training operator of Kubeflow, which has no local ranks.
func findTorchrun(env Environment, _ overrule) answer {
	r := &reader{vars: env.Vars}
	switch {
	case !r.any("RANK", "WORLD_SIZE"):
		return absent("RANK and WORLD_SIZE are not set")
	case !r.has("RANK") && r.text("WORLD_SIZE") == "1":
		return absent("WORLD_SIZE is 1, and RANK is not set")
	}
	r.need(r.first("RANK", "WORLD_SIZE"), "RANK", "WORLD_SIZE")
	p := Process{
		Launcher:  Torchrun,
		Rank:      r.number("RANK"),
		Size:      r.number("WORLD_SIZE"),
		LocalRank: r.optional("LOCAL_RANK", 0),
		LocalSize: r.optional("LOCAL_WORLD_SIZE", 0),
	}
	if r.err == nil && p.Size == 1 && p.Rank == 0 && !r.has("MASTER_ADDR") {
		p.LocalSize, p.Host = 1, -1
		return answer{process: p} // It needs no others.
	}
	r.need("RANK", "MASTER_ADDR", "MASTER_PORT")
	if port := r.number("MASTER_PORT"); r.err == nil && (port == 0 || port > 65535) {
		r.err = fmt.Errorf("MASTER_PORT is %d: expected a port from 1 to 65535: correct it", port)
	}
	p.Hosts = []string{r.text("MASTER_ADDR")}
	p.Host = r.optional("GROUP_RANK", p.Rank)
	// TORCHELASTIC_RESTART_COUNT counts the failures that the torchrun of one host has seen: hosts of one world can differ.
	p.Job = net.JoinHostPort(r.text("MASTER_ADDR"), r.text("MASTER_PORT")) + "/" + r.text("TORCHELASTIC_RUN_ID")
	if p.OneHost() {
		p.Job += "." + r.text("TORCHELASTIC_RESTART_COUNT")
	}
	return r.answer(p)
}
