package main

// writeStream writes a function that copies n bytes, a multiple of 64, to where
// they are aligned to 64, past the caches. What is stored later is seen later.
func writeStream(g *generator) {
	g.conversion("stream", 1, 1, func() converter {
		return func(dst, src block) { g.VMOVNTDQ(g.load(src), dst.at) }
	}, g.SFENCE)
}
