package nccl

import "github.com/nexar-go/nexar/device"

// copies queues copies of n bytes between two regions: block from(k) of src to block to(k) of dst.
func (g *Group) copies(dst, src device.Region, blocks, n int, to, from func(k int) int) error {
	if n == 0 {
		return nil
	}
	for k := 0; k < blocks; {
		// Blocks at equal distances are one copy.
		rows, toStep, fromStep := 1, 0, 0
		for k+rows < blocks {
			a, b := to(k+rows)-to(k+rows-1), from(k+rows)-from(k+rows-1)
			if rows > 1 && (a != toStep || b != fromStep) || a < 1 || b < 1 {
				break
			}
			toStep, fromStep = a, b
			rows++
		}
		d, s := part(dst, to(k)*n, n), part(src, from(k)*n, n)
		d.Rows, d.Stride, s.Rows, s.Stride = rows, toStep*n, rows, fromStep*n
		if err := g.stream.Copy(d, s); err != nil {
			return err
		}
		k += rows
	}
	return nil
}

// byLocalRank is the position of the k-th block of a vector with the blocks of all ranks by local rank and then by host,
// as the number of its rank.
func (g *Group) byLocalRank(k int) int { return g.hosts[k%len(g.hosts)][k/len(g.hosts)] }

// byHost is byLocalRank for blocks by host and then by local rank.
func (g *Group) byHost(k int) int { return g.hosts[k/len(g.hosts[0])][k%len(g.hosts[0])] }

// same is the position of a block that does not move.
func same(k int) int { return k }
