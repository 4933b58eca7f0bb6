package launch

import "github.com/nexar-go/nexar/launch/internal/text"

// findPMI recognizes mpiexec of MPICH and Intel MPI (hydra).
func findPMI(env Environment, _ overrule) answer {
	r := &reader{vars: env.Vars}
	if !r.any("PMI_RANK", "PMI_SIZE") {
		if r.has("PMI_PORT", "PMI_ID") {
			return partial("PMI_PORT is %s, and PMI_RANK is not set: expected PMI_FD, PMI_RANK and PMI_SIZE: start mpiexec without -pmi-port", text.Quote(r.text("PMI_PORT")))
		}
		return absent("PMI_RANK and PMI_SIZE are not set")
	}
	present := r.first("PMI_RANK", "PMI_SIZE")
	r.need(present, "PMI_RANK", "PMI_SIZE")
	p := Process{
		Launcher:  PMI,
		Job:       r.text("I_MPI_HYDRA_UUID"), // of Intel MPI; MPICH has none
		Rank:      r.number("PMI_RANK"),
		Size:      r.number("PMI_SIZE"),
		LocalRank: r.optional("MPI_LOCALRANKID", 0),
		LocalSize: r.optional("MPI_LOCALNRANKS", 0),
		Host:      -1,
		HasPMI:    r.has("PMI_FD"),
	}
	if r.err == nil && p.Size > 1 && !p.HasPMI {
		return partial("PMI_RANK is %d of PMI_SIZE %d, but PMI_FD is not set: expected the descriptor of the process manager: "+
			"start all processes by mpiexec, or unset these variables if they are left over", p.Rank, p.Size)
	}
	return r.answer(p)
}

// findOpenMPI recognizes mpirun of Open MPI, whose variables have no address of another host.
func findOpenMPI(env Environment, _ overrule) answer {
	r := &reader{vars: env.Vars}
	if !r.any("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE") {
		if r.has("PMIX_RANK") && !r.has("SLURM_JOB_ID") {
			return partial("PMIX_RANK is %s, but OMPI_COMM_WORLD_SIZE is not set: mpirun of Open MPI sets both: use it instead of prterun, or set NEXAR_SEEDS", text.Quote(r.text("PMIX_RANK")))
		}
		return absent("OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are not set")
	}
	r.need(r.first("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
		"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE")
	return r.answer(Process{
		Launcher:  OpenMPI,
		Job:       r.text("PMIX_NAMESPACE"),
		Rank:      r.number("OMPI_COMM_WORLD_RANK"),
		Size:      r.number("OMPI_COMM_WORLD_SIZE"),
		LocalRank: r.number("OMPI_COMM_WORLD_LOCAL_RANK"),
		LocalSize: r.number("OMPI_COMM_WORLD_LOCAL_SIZE"),
		Host:      -1,
	})
}
