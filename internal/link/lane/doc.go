// Package lane is the protocol of the two sides of a link: every frame is delivered exactly once and in order over any
// sequence of connections. A connection may end, stall or be replaced at any byte, by either side, without asking the other.
// The package is pure: it has no goroutine, lock, clock or channel, and it neither reads nor writes connections.
//
// # Numbers
//
// A lane of short frames is a stream of bytes. The number of a frame is the position of its first byte, as the sequence
// number of a segment is in TCP. A receiver counts whole frames alone ([In]), after it has handled them, so neither side
// stores the beginnings of frames. The sender keeps frames until the receiver acknowledges them ([Out]). Numbers belong to
// the lane and not to a connection, as the data sequence numbers of Multipath TCP do: a new connection goes on where the
// receiver is.
//
// Transient frames (acknowledgements, beats, keys of remote memory) belong to one connection. They are written between
// numbered frames, and are neither counted nor kept nor repeated.
//
// # Bulk
//
// Granted payloads need no numbers. Each grant has an offset of its own ([Grants], [Transfers]), so that pipes are
// independent and grants can be withdrawn. A transfer is delivered when the receiver reports its grant as finished,
// filled or withdrawn, or when the receiver does not list the grant at the beginning of a new connection. The report is a transient frame:
// if it is lost, so was the connection. Grants have ascending numbers, and the list
// covers the grants up to the last one made: a later grant may be announced
// over another lane before the list arrives, and is not finished.
//
// # Connections
//
// The [Session] of a link decides which connection carries it. The side that has made a connection proposes it:
//
//	proposer                                     other side
//	Resume{number, names, positions}  ------->
//	                                  <-------   Resume{number, names, positions}
//	uses the connection: a beat       ------->   uses the connection
//	frames from the positions         <------>   frames from the positions
//
// A side states its positions while it uses no connection, and none of its readers runs. A [Claim] notes how many connections of the link had ended at
// that time: if the link has used another one since, the claim is old, and its connection is not used. So two connections never fill
// one sink, and old positions are never used, whatever the other side does.
//
// A side may read a proposal although it uses a connection. If the number of the proposal is larger than that of the connection, the peer
// has lost the connection: it proposes none while it uses or accepts one. So this side ends the connection, and then states its positions. If the number
// is smaller, the peer has given the proposal up.
//
// The confirmation, a beat, says that the proposer uses the connection. Without it the other side could use a connection that the proposer
// has given up before it read the answer.
//
// If both sides propose at once, either connection may be used, by both. The caller lets the proposal of the larger NodeID win.
//
// # Names
//
// A link has a name on each side: the process, and the number of the link there. The first connection binds the name of the
// peer. Another name means that the peer has ended its link, and begun a later one. A side without the link, or with a later one, answers the
// proposal for a link that has ended by a Resume without a name ([Session.IsForEarlier]).
//
// # Races
//
//   - A proposal arrives after its sender has given it up. The other side accepts it, and waits for the confirmation until it sees the end of the
//     connection.
//   - A proposal arrives after a later connection was used. Its number is smaller: it is refused.
//   - An answer arrives after the proposer has used another connection. The claim is old.
//   - The other side waits on a connection that this side has lost. It reads a larger number, and drops that connection.
//   - The peer acknowledges bytes before the write returns, or has received bytes of a write that has failed. What was handed to a
//     writer counts as sent.
//   - A connection breaks within a frame, and the peer sends other bytes at the same position over the next one. No frame is handled
//     twice, and the receiver has kept nothing of the first bytes to compare.
//   - A writer of an earlier connection still reads a buffer while the next connection repeats and acknowledges the same bytes. A
//     buffer that it can hold is never written again.
//   - A connection breaks between the payload and the report that a grant is finished. The next opening does not list the grant.
//   - A grant is made after its side has stated its positions, and its announcement arrives on the other lane before
//     them. Its number is larger than the last one stated, so it is not taken for finished.
//   - A grant is withdrawn while a segment for it arrives. The rest is discarded, and the report that the grant is finished follows.
//   - The goodbye has arrived, and its acknowledgement has not. The next proposal is answered by the end of the link.
package lane
