// Package launchers tests programs that real launchers start: Slurm, MPICH's and Intel MPI's mpiexec, Open MPI's mpirun, and torchrun.
//
// It has tests only. The script install gets the launchers; "make launchers" runs it, fails if one is missing, and writes docs/launchers.md. The
// programs that the launchers start are the test binary in one of its roles. A test gets its own Slurm cluster from startSlurm.
//
// Without TRIALS=all, which "make launchers" sets, one case of each kind runs, if its launcher is installed.
package launchers
