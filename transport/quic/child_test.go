package quic

import (
	"errors"

	"github.com/nexar-go/nexar/internal/testpeer"
)

// childEnv makes the test binary a peer of another process. Its value is its
// configuration as JSON.
const childEnv = "NEXAR_QUIC_TEST_CHILD"

type childOrders struct {
	testpeer.EncodedCreds
	Dial string // address to dial, or "" to listen
}

func childMain() {
	var orders childOrders
	testpeer.ReadOrders(childEnv, &orders)
	end, err := Listen(Config{Addr: "127.0.0.1:0", Heartbeat: -1})
	testpeer.Check(err)
	tr, err := end.Transport(orders.Creds())
	testpeer.Check(err)
	testpeer.Serve(tr, orders.Dial, func() error { return errors.Join(tr.Close(), end.Close()) })
}
