package nccl

// AllowSameGPU lets ranks of one host have the same GPU.
func AllowSameGPU() { sameGPU = true }
