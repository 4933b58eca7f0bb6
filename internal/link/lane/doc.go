// Package lane is the protocol of the two sides of a link: every frame is delivered exactly once and in order over any
// sequence of connections. A connection may end, stall or be replaced at any byte, by either side, without asking the other.
// The package is pure: it has no goroutine, lock, clock or channel, and it neither reads nor writes connections: the methods
// return actions for the caller. A lock of the lane guards its Out and In. One lock of the link guards its Names with all Sessions, its
// Grants and its Transfers.
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
// filled or withdrawn, or when a new connection opens and the receiver does not list the grant. The report is a transient frame of the
// lane with the list in its opening: if it is lost, that lane opens again. Grants have ascending numbers, and the list
// covers the grants up to the last one made: a later grant may be announced
// over another lane before the list arrives, and is not finished.
//
// # Openings
//
// Package link uses [Out], [In], [Grants] and [Transfers]. It does not use sessions: it orders proposals by the numbers of
// wire.Resume, and recognizes ended links by their names alone. Sessions order them by generations.
//
// The [Session] of a lane decides on its connection. The side that has made a connection proposes it:
//
//	proposer                                    other side
//	stops its readers
//	Open{names, generation, numbers}  ------->  stops its readers
//	sends from the numbers            <-------  Open{names, generation, numbers}, sends from the numbers
//
// Both sides state their numbers after their readers have stopped, so the numbers stay true until the connection opens. The
// proposer sends frames after one round trip, the other side after half of one. Generations order proposals as ballots do in
// Paxos: a proposal has the largest generation seen + 1, and the one of the larger NodeID counts if two are equal. After a side
// has stated its numbers for a generation, it never reads from a connection of a smaller one. So two connections never
// fill one sink, and late numbers are never used.
//
// The answer to a proposal of a smaller generation is a refusal with the largest generation seen, and the proposer proposes the connection
// again with a larger one. So a connection that only one side has lost does not stop a new one, and the package needs no timer.
//
// # Names
//
// A link has a name on each side ([ID]): the process, and the number of the link there. The first opening that a session
// uses binds the name of the peer. The answer to an opening for an ended link is Ended, and the other side ends as
// well; the caller asks its tombstones ([Tombstone.Answer]) before the session of a later link: the session does not know the numbers of the earlier link. An opening of
// another process does not end a link at once: it may have waited in a queue since before the end of that process. It is
// refused, and the answer of a living process ends the link. A session without a peer may bind an ended process. Then the link ends
// when the next process answers.
//
// # Races
//
//   - A proposal arrives after its sender has given it up. The other side accepts it and drops its earlier connection, as the
//     sender had before it stated its numbers. The next proposal has a larger generation.
//   - A proposal arrives after a later one was used. Its numbers are old. It is refused, and its sender has closed the
//     connection or proposes it with a larger generation, and with the numbers of that time.
//   - Both sides propose at once. The smaller side accepts, or it reads its refusal first and proposes again. It does only one of
//     them, since accepting closes its own connection, so one connection remains.
//   - The other side waits on a connection that this side has lost. It refuses smaller generations, and accepts the
//     repeated proposal.
//   - The peer acknowledges bytes before the write returns, or has received bytes of a write that has failed. What was handed to a
//     writer counts as sent.
//   - A connection breaks within a frame, and the peer sends other bytes at the same position over the next one. No frame is handled
//     twice, and the receiver has kept nothing of the first bytes to compare.
//   - A writer of an earlier connection still reads a buffer while the next connection repeats and acknowledges the same bytes. A
//     buffer that it can hold is never written again.
//   - A connection breaks between the payload and the report that a grant is finished. The next opening does not list the grant.
//   - A grant is made after its side has stated its numbers, and its announcement arrives on the other lane before
//     them. Its number is larger than the last one stated, so it is not taken for finished.
//   - A grant is withdrawn before the transfer starts, and between the two an opening does not list it. The first segment is discarded
//     and answered by the report that the grant is finished.
//   - The goodbye has arrived, and its acknowledgement has not. The next proposal is answered by the tombstone of the link, with
//     the number of bytes received.
package lane
