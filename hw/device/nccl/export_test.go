package nccl

// WithSameGPU lets ranks of one host have the same GPU.
func (c Config) WithSameGPU() Config {
	c.sameGPU = true
	return c
}
