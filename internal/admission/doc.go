// Package admission bounds the incoming connections of unauthenticated peers, and
// shares them out among the sources they come from.
//
// A [Table] decides which connection is admitted, which one is evicted for it, and
// which one is refused. It is pure: it has no lock and no clock, and its results
// depend on its parameters alone. A [Gate] is a Table for several goroutines, which
// also closes evicted connections and can wait for a place.
//
// Transports ask a Gate before they spend anything on a connection, above all
// before its TLS handshake, and tell it when the peer has authenticated itself.
package admission
