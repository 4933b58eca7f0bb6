// Package gpudirect has tests of vectors on GPUs that network cards access, over fakes of the CUDA driver and of libibverbs.
// The fakes run in the process of the tests: memory of a GPU has addresses at which an access of the processor ends the
// process, and writes of a network card are visible to kernels only after a flush.
package gpudirect
