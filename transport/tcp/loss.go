package tcp

import "time"

// lossShare is the reciprocal of the share of lost segments above which a path is
// lossy: 0.5 %.
const lossShare = 200

// segmentCounts are counters of a socket since it was opened.
type segmentCounts struct {
	sent          uint32 // with data, retransmissions included
	retransmitted uint32
	duplicates    uint32 // retransmissions that the peer did not need, by its DSACKs (RFC 2883)
}

// since returns the counts between an earlier sample and c.
func (c segmentCounts) since(earlier segmentCounts) segmentCounts {
	return segmentCounts{c.sent - earlier.sent, c.retransmitted - earlier.retransmitted, c.duplicates - earlier.duplicates}
}

// A lossDetector decides whether a path is lossy. On a busy host most retransmissions
// are spurious: the peer was only late to acknowledge. The DSACK that tells them from
// losses comes a round trip after the retransmission, so those of one interval are
// judged at the end of the next. Without DSACKs of the peer all count as losses.
type lossDetector struct {
	at          time.Time     // end of the last interval
	total       segmentCounts // at that time
	sent        uint32        // segments of the last interval
	unexplained uint32        // retransmissions of it that no DSACK has explained so far
}

// pending reports whether retransmissions are still to be judged.
func (d *lossDetector) pending() bool { return d.unexplained > 0 }

// observe reports whether the path lost more than its share of segments. A sample less
// than a round trip after the end of the last interval has no effect.
func (d *lossDetector) observe(p sample, now time.Time) (lossy bool) {
	if now.Sub(d.at) < p.rtt {
		return false
	}
	counts := p.segments.since(d.total)
	late := min(d.unexplained, counts.duplicates) // DSACKs for the last interval
	prompt := min(counts.retransmitted, counts.duplicates-late)
	lossy = uint64(d.unexplained-late)*lossShare > uint64(d.sent)
	d.at, d.total = now, p.segments
	d.sent, d.unexplained = counts.sent, counts.retransmitted-prompt
	return lossy
}
