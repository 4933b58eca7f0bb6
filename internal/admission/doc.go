// Package admission limits the number of incoming connections of unauthenticated peers, and
// divides that number fairly among their source addresses.
//
// A [Table] decides whether a connection is admitted or refused, and which other one is evicted
// for it. It is pure: it has no lock and no clock. A [Gate] is a Table for several goroutines.
// It also closes evicted connections and can wait for room.
//
// A transport calls a Gate before it spends resources on a connection, in particular before the
// TLS handshake, and again when the peer has authenticated itself.
//
// # Bounds
//
//	unproved connections of a port     512, or twice the nodes of the world, at most a quarter of the open files; UDP and TCP
//	                                   together, about 120 KiB each
//	of one source                      an IPv4 address or an IPv6 /64: no bound while places are free; then the source with the
//	                                   most connections loses its oldest one, if that is a second old or the source has twice
//	                                   as many as that of the new one
//	failures of one source             the places and half of them, from 256 to 1,024, in a short time, then 10 a second; a
//	                                   proof offsets two
//	QUIC handshakes in progress        1,024; an evicted one lasts until its timeout of 5 s
//	unverified addresses over QUIC     from 64 unproved connections on they get a Retry, which needs no state
//	Retries and refusals over QUIC     512 at once for a source, and 128 a second
//	time without a proof               2 s for the first byte over TCP, 10 s for a socket of transport/tcp, 5 to 10 s for a QUIC
//	                                   handshake, then 5 s for the token, or 20 ms for each node of the world, at most 10 s
//	remembered sources                 those with connections, and 1,024 others
//
// A refused or evicted dialer gets transport.ErrBusy, and retries after a growing, random pause. A proved connection is in no
// table and is never evicted. The port of "nexar seed --health" has a table of its own, where an answered request is the proof.
//
// # Attackers without the token
//
// An attacker takes all places only with several hundred addresses, since each makes ten handshakes a second. It cannot have another
// host refused by forging its address: only failures of verified addresses count; a flood slows that host, since both share the
// Retries of the address. Clients behind its own address share 10 connections a second with it. 1,000 QUIC handshakes a second
// cost about 0.1 s of processor time a second, TCP half of that. Against a saturated link only a firewall helps.
package admission
