package tcp

import "github.com/nexar-go/nexar/internal/testpeer"

// childEnv makes the test binary a peer of another process. Its value is its
// configuration as JSON.
const childEnv = "NEXAR_TCP_TEST_CHILD"

type childOrders struct {
	Creds testpeer.EncodedCreds
	Plain bool
	Dial  string // address to dial, or "" to listen
}

func childMain() {
	var orders childOrders
	testpeer.ReadOrders(childEnv, &orders)
	tr, err := Listen(Config{Addr: "127.0.0.1:0", Plain: orders.Plain}, orders.Creds.Creds())
	testpeer.Check(err)
	testpeer.Serve(tr, orders.Dial, tr.Close)
}
