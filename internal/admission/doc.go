// Package admission limits the number of incoming connections of unauthenticated peers, and
// divides that number fairly among their source addresses.
//
// A [Table] decides whether a connection is admitted or refused, and which other one is evicted
// for it. It is pure: it has no lock and no clock. A [Gate] is a Table for several goroutines.
// It also closes evicted connections and can wait for room.
//
// A transport calls a Gate before it spends resources on a connection, in particular before the
// TLS handshake, and again when the peer has authenticated itself.
package admission
