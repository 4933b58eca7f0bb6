// Package launchers tests programs that real launchers start: MPICH's and Intel MPI's mpiexec, and Slurm.
//
// It has tests only. The script install gets the launchers; "make launchers" runs it, and fails if one is missing. The programs that
// the launchers start are the test binary in one of its roles. A test gets its own Slurm cluster from startSlurm.
package launchers
