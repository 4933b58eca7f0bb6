package main

// writeStream writes a function that copies n bytes, a multiple of 64, with non-temporal stores
// to dst, which is aligned to 64 bytes. It ends with a store fence.
func writeStream(g *generator) {
	g.conversion("stream", 1, 1, func() converter {
		return func(dst, src block) { g.VMOVNTDQ(g.load(src), dst.at) }
	}, g.SFENCE)
}
